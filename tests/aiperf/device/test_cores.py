"""A rank stays on cores near its device, and on those that it was given; limits of control groups are
those of files as the kernel writes them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from aiperf.device import cgroup, near_cores
from aiperf.device.near_cores import listed, numbered, stay_near
from tests.tables import ComesTo

NODES = (3, 1, 0, 2)
"""NUMA nodes of the devices of an MI250X host, one of two dies each, in their order."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for index, node in enumerate(NODES):
        device = tmp_path / f"sys/bus/pci/devices/0000:c{index}:00.0"
        device.mkdir(parents=True)
        (device / "numa_node").write_text(f"{node}\n")
        cores = tmp_path / f"sys/devices/system/node/node{node}"
        cores.mkdir(parents=True)
        (cores / "cpulist").write_text(f"{4 * node}-{4 * node + 3},{16 + 4 * node}-{16 + 4 * node + 3}\n")
    return tmp_path


def test_the_given_cores_are_narrowed_to_those_near(
    root: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """Those of this process, and of each of its threads. A list of the kernel is read whole or not at all."""
    monkeypatch.setattr(near_cores.os, "listdir", lambda path: ["7", "8"])

    def narrowed(device: int, given: Iterable[int]) -> tuple[str, ...]:
        masks = {thread: set(given) for thread in (0, 7, 8)}
        monkeypatch.setattr(near_cores.os, "sched_getaffinity", lambda thread: masks[thread])
        monkeypatch.setattr(near_cores.os, "sched_setaffinity", masks.__setitem__)
        return stay_near(f"0000:c{device}:00.0", root), *(listed(masks[thread]) for thread in (7, 8))

    comes_to_what_was_read("near_cores.txt", {"narrowed": narrowed, "numbered": numbered})


FIRST = "12:cpu,cpuacct:/docker/1f\n5:memory:/docker/1f\n1:name=systemd:/docker/1f\n0::/system.slice\n"


NESTED = {
    "pod/cpu.max": "100000 100000",
    "pod/box/cpu.max": "400000 100000",
    "pod/memory.max": "8589934592",
    "pod/box/memory.max": "max",
}
OF_FIRST = {
    "cpu/docker/1f/cpu.cfs_quota_us": "200000",
    "cpu/docker/1f/cpu.cfs_period_us": "100000",
    "cpu/cpu.cfs_quota_us": "-1",
    "cpu/cpu.cfs_period_us": "100000",
    "memory/docker/1f/memory.limit_in_bytes": "1073741824",
    "memory/memory.limit_in_bytes": "9223372036854771712",
}


def test_the_narrowest_limit_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """Cores and bytes of memory, by the group of a process and the files of all groups."""

    def limits(own: str, files: Mapping[str, str]) -> tuple[float, float]:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        if own:
            (folder / "own").write_text(own)
        monkeypatch.setattr(cgroup, "OWN", folder / "own")
        monkeypatch.setattr(cgroup, "MOUNTED", folder / "mounted")
        for name, text in files.items():
            path = folder / "mounted" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        return cgroup.cores(), cgroup.memory_bytes()

    comes_to_what_was_read("cgroup_limits.txt", {**globals(), "limits": limits})
