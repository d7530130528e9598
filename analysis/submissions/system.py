"""The description of a system: MLPerf's fields, filled where the journal or this machine can say.

mlcommons/training_policies, "MLPerf Training Submission Rules", and the list that
mlperf-logging's system_desc_checker requires.
"""

from __future__ import annotations

import os
import re
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aiperf.hardware.cpu_names import is_processor, read_processor_name
from aiperf.journal.replay import Replay
from aiperf.rules.verdict import RunClass
from aiperf.wording import bytes_text
from analysis.readings.judgement import Judged
from analysis.readings.run_tables import software
from analysis.readings.score_figures import num_devices
from analysis.submissions.schema import schema
from nas.bounded import system_text

OF_JOURNAL = ("number_of_nodes", "accelerators_per_node", "accelerator_model_name", "framework")
"""Fields that must say what the journal says."""


def fields() -> dict[str, str]:
    """Every field with what belongs there, in the order of the schema."""
    return {name: str(entry["description"]) for name, entry in _properties().items()}


def needed() -> list[str]:
    """Fields that may not be left empty."""
    return [name for name, entry in _properties().items() if entry.get("minLength") or "enum" in entry]


def choices(name: str) -> Sequence[str]:
    """The values that a field may have; empty where it takes any."""
    options: Sequence[str] = _properties()[name].get("enum", ())
    return options


def _properties() -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema("system-1")["properties"]
    return found


def from_journal(replay: Replay) -> dict[str, str]:
    """The fields that the journal states, from the ranks that took part; empty if none did."""
    ranks = replay.devices
    if not ranks:
        return {}
    by_host = Counter(ready.host for ready in ranks.values())
    names = sorted({ready.device for ready in ranks.values()})
    memory = sorted({ready.memory_bytes for ready in ranks.values()})
    stack = software(replay)
    on_host = all(map(is_processor, names))
    found = {
        "number_of_nodes": str(len(by_host)),
        "accelerators_per_node": "0" if on_host else _span(sorted(set(by_host.values()))),
        "accelerator_model_name": ", ".join(names),
        "framework": f"PyTorch {stack.get('torch', 'unknown')}",
        "other_software_stack": ", ".join(f"{name} {version}" for name, version in stack.items()),
        "operating_system": stack.get("system", ""),
    }
    if on_host:
        return found | {"host_memory_capacity": bytes_text(memory[-1])}
    return found | {"accelerator_memory_capacity": bytes_text(memory[-1])}


def from_this_machine(replay: Replay, root: Path = Path("/")) -> dict[str, str]:
    """What the operating system says about the host; nothing on a machine that took no part in the run."""
    hosts = {event.ready.host for leg in replay.counted_legs for event in leg.ranks}
    if socket.gethostname() not in hosts:
        return {}
    found = {"host_processor_vcpu_count": str(os.cpu_count() or "")}
    if name := read_processor_name(root):
        found["host_processor_model_name"] = name
    found |= _processor(system_text(root / "proc/cpuinfo"))
    if memory := re.search(r"^MemTotal:\s+(\d+) kB", system_text(root / "proc/meminfo"), re.MULTILINE):
        found["host_memory_capacity"] = bytes_text(int(memory[1]) * 1024)
    if system := re.search(r'^PRETTY_NAME="(.*)"', system_text(root / "etc/os-release"), re.MULTILINE):
        found["operating_system"] = system[1]
    highest = system_text(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").strip()
    if highest.isdigit():
        found["host_processor_frequency"] = f"{int(highest) // 1000} MHz"
    caches = _caches(root / "sys/devices/system/cpu/cpu0/cache")
    return found | ({"host_processor_caches": caches} if caches else {})


def largest(replays: Sequence[Replay]) -> Replay:
    """The run that the description of several must fit: the one with the most devices."""
    return max(replays, key=num_devices)


def contradictions(system: Mapping[str, str], runs: Sequence[Judged]) -> list[str]:
    """Where a description contradicts the journal of the largest run, or claims a division that not all runs
    allow."""
    told = from_journal(largest([run.replay for run in runs]))
    wrong = [
        f"{name} is {system[name]!r:.80}, the journal says {told[name]!r:.80}"
        for name in OF_JOURNAL
        if name in told and system.get(name) != told[name]
    ]
    is_ranked = all(run.verdict.run_class is RunClass.RANKED for run in runs)
    if system.get("division") == "closed" and not is_ranked:
        wrong.append("division is 'closed', but a run is not of the class ranked: state 'open'")
    return wrong


def _processor(text: str) -> dict[str, str]:
    """Sockets and cores per socket, from the text of Linux's /proc/cpuinfo."""
    found = {}
    if sockets := set(re.findall(r"^physical id\s*:\s*(\d+)$", text, re.MULTILINE)):
        found["host_processors_per_node"] = str(len(sockets))
    if cores := re.search(r"^cpu cores\s*:\s*(\d+)$", text, re.MULTILINE):
        found["host_processor_core_count"] = cores[1]
    return found


def _caches(folder: Path) -> str:
    """Caches of the first core by level and size, as Linux shows them."""
    parts = []
    for entry in sorted(folder.glob("index*")):
        level, kind, size = (system_text(entry / name).strip() for name in ("level", "type", "size"))
        if level and size:
            parts.append(f"L{level}{kind[0].lower() if level == '1' and kind else ''} {size}")
    return ", ".join(parts)


def _span(values: list[int]) -> str:
    """One number, or the least and the greatest if nodes differ."""
    return str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"
