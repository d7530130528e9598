"""Limits of control groups, from files as the kernel writes them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from aiperf.device import cgroup
from tests.tables import ComesTo

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
