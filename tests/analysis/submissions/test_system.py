"""The system's description: what is filled, from where, and what contradicts the journal."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from aiperf.errors import AiperfError
from analysis.readings.judged import Judged
from analysis.submissions.schema import check
from analysis.submissions.system import (
    contradictions,
    fields,
    from_journal,
    from_this_machine,
    largest,
    needed,
)
from tests.analysis.packages import described

CPUINFO = """\
processor\t: 0
model name\t: AMD EPYC 7763 64-Core Processor
physical id\t: 0
cpu cores\t: 64

processor\t: 1
model name\t: AMD EPYC 7763 64-Core Processor
physical id\t: 1
cpu cores\t: 64
"""


def machine(root: Path) -> Path:
    """As Linux shows one."""
    for name, text in {
        "proc/cpuinfo": CPUINFO,
        "proc/meminfo": "MemTotal:       527806468 kB\nMemFree: 1 kB\n",
        "etc/os-release": 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
        "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3529052\n",
        "sys/devices/system/cpu/cpu0/cache/index0/level": "1\n",
        "sys/devices/system/cpu/cpu0/cache/index0/type": "Data\n",
        "sys/devices/system/cpu/cpu0/cache/index0/size": "32K\n",
        "sys/devices/system/cpu/cpu0/cache/index3/level": "3\n",
        "sys/devices/system/cpu/cpu0/cache/index3/type": "Unified\n",
        "sys/devices/system/cpu/cpu0/cache/index3/size": "32768K\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_host_of_the_run_tells_of_itself(
    judged: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node0002")
    found = from_this_machine(judged.replay, machine(tmp_path))
    found.pop("host_processor_vcpu_count")
    assert found == {
        "host_processor_model_name": "AMD EPYC 7763 64-Core Processor",
        "host_processors_per_node": "2",
        "host_processor_core_count": "64",
        "host_memory_capacity": "503.4 GiB",
        "operating_system": "Debian GNU/Linux 12 (bookworm)",
        "host_processor_frequency": "3529 MHz",
        "host_processor_caches": "L1d 32K, L3 32768K",
    }


def test_a_machine_that_took_no_part_says_nothing(judged: Judged, tmp_path: Path) -> None:
    assert from_this_machine(judged.replay, machine(tmp_path)) == {}


def test_one_that_hides_everything_is_no_error(
    judged: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node0002")
    assert set(from_this_machine(judged.replay, tmp_path)) == {"host_processor_vcpu_count"}


def test_every_field_is_told_what_belongs_there() -> None:
    assert all(text.endswith(".") for text in fields().values())
    assert {"submitter", "status", "division", "system_name", "number_of_nodes"} <= set(needed())


def test_the_journal_is_believed_before_the_description(judged: Judged) -> None:
    good = described(judged.files)
    assert contradictions(good, [judged]) == []
    assert contradictions({**good, "number_of_nodes": "400"}, [judged]) == [
        "number_of_nodes is '400', the journal says '4'"
    ]
    assert largest([judged.replay, judged.replay]) is judged.replay


def test_a_processor_is_no_accelerator(judged: Judged) -> None:
    assert from_journal(judged.replay)["accelerators_per_node"] == "2"


@pytest.mark.parametrize("field", ["submitter", "status", "accelerator_model_name"])
def test_what_may_not_be_empty_is_refused(field: str, judged: Judged) -> None:
    good = {**described(judged.files), "division": "open"}
    check("system-1", good, "it")
    with pytest.raises(AiperfError, match=field):
        check("system-1", {**good, field: ""}, "it")
