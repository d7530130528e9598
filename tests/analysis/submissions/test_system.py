"""The system's description: what is filled, from where, and what contradicts the journal."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from aiperf.errors import AiperfError
from analysis.readings.judgement import Judged
from analysis.submissions.schema import check
from analysis.submissions.system import contradictions, from_this_machine, largest
from tests.analysis.packages import described

NAME = "AMD EPYC 7763 64-Core Processor"
CORE = f"processor\t: {{0}}\nmodel name\t: {NAME}\nphysical id\t: {{0}}\ncpu cores\t: 64\n"
CACHED = ("level", "type", "size")
CACHE = "sys/devices/system/cpu/cpu0/cache/index"


def machine(root: Path) -> Path:
    """As Linux shows one."""
    for name, text in {
        "proc/cpuinfo": "\n".join(CORE.format(number) for number in range(2)),
        "proc/meminfo": "MemTotal:       527806468 kB\nMemFree: 1 kB\n",
        "etc/os-release": 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
        "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3529052\n",
        **{f"{CACHE}0/{name}": text for name, text in zip(CACHED, ("1", "Data", "32K"))},
        **{f"{CACHE}3/{name}": text for name, text in zip(CACHED, ("3", "Unified", "32768K"))},
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_host_of_the_run_tells_of_itself(
    judged: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that took no part says nothing, and one that hides everything is no error."""
    root = machine(tmp_path / "open")
    assert from_this_machine(judged.replay, root) == {}
    monkeypatch.setattr(socket, "gethostname", lambda: "node0002")
    assert set(from_this_machine(judged.replay, tmp_path)) == {"host_processor_vcpu_count"}
    found = from_this_machine(judged.replay, root)
    found.pop("host_processor_vcpu_count")
    assert found == {
        "host_processor_model_name": NAME,
        "host_processors_per_node": "2",
        "host_processor_core_count": "64",
        "host_memory_capacity": "503.4 GiB",
        "operating_system": "Debian GNU/Linux 12 (bookworm)",
        "host_processor_frequency": "3529 MHz",
        "host_processor_caches": "L1d 32K, L3 32768K",
    }


def test_the_journal_is_believed_before_the_description(judged: Judged) -> None:
    good = described(judged.files)
    assert contradictions(good, [judged]) == []
    assert contradictions({**good, "number_of_nodes": "400"}, [judged]) == [
        "number_of_nodes is '400', the journal says '4'"
    ]
    assert largest([judged.replay, judged.replay]) is judged.replay


@pytest.mark.parametrize("field", ["submitter", "status", "accelerator_model_name"])
def test_what_may_not_be_empty_is_refused(field: str, judged: Judged) -> None:
    good = {**described(judged.files), "division": "open"}
    check("system-1", good, "it")
    with pytest.raises(AiperfError, match=field):
        check("system-1", {**good, field: ""}, "it")
