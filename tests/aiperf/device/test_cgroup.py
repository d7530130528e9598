"""Limits of control groups, from files as the kernel writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from aiperf.device import cgroup

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


@pytest.mark.parametrize(
    ("own", "files", "cores", "memory_bytes"),
    [
        ("0::/\n", {}, math.inf, math.inf),
        ("0::/\n", {"cpu.max": "max 100000", "memory.max": "max"}, math.inf, math.inf),
        ("0::/\n", {"cpu.max": "250000 100000", "memory.max": "4294967296"}, 2.5, 4.0 * 2**30),
        # Of the groups that it lies in, the narrowest.
        ("0::/pod/box\n", NESTED, 1.0, 8.0 * 2**30),
        # Another container's names: only the root is there.
        ("0::/docker/1f\n", {"cpu.max": "150000 50000"}, 3.0, math.inf),
        (FIRST, OF_FIRST, 2.0, 2.0**30),
        (FIRST, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, math.inf, math.inf),
    ],
)
def test_the_narrowest_limit_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own: str,
    files: Mapping[str, str],
    cores: float,
    memory_bytes: float,
) -> None:
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(cgroup, "OWN", tmp_path / "own")
    monkeypatch.setattr(cgroup, "MOUNTED", tmp_path / "mounted")
    for name, text in files.items():
        path = tmp_path / "mounted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert (cgroup.cores(), cgroup.memory_bytes()) == (cores, memory_bytes)


def test_where_nothing_is_told_nothing_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "OWN", tmp_path / "none")
    assert (cgroup.cores(), cgroup.memory_bytes()) == (math.inf, math.inf)
