"""Limits on CPU time and memory by the control groups of this process, as in a container: cgroups(7),
versions 1 and 2."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

OWN = Path("/proc/self/cgroup")
"""The groups of this process: one line for each hierarchy of version 1, and one for version 2."""
MOUNTED = Path("/sys/fs/cgroup")


def cores() -> float:
    """Limit on the CPU time in seconds per second, which is a number of cores; infinite without a limit."""
    second = [_ratio(*_numbers(folder / "cpu.max")) for folder in _folders("")]
    first = [
        _ratio(*_numbers(folder / "cpu.cfs_quota_us"), *_numbers(folder / "cpu.cfs_period_us"))
        for folder in _folders("cpu")
    ]
    return min([*second, *first], default=math.inf)


def memory_bytes() -> float:
    """Limit on the memory in bytes; infinite without a limit."""
    second = [limit for folder in _folders("") for limit in _numbers(folder / "memory.max")]
    first = [limit for folder in _folders("memory") for limit in _numbers(folder / "memory.limit_in_bytes")]
    return min([*second, *first], default=math.inf)


def _folders(controller: str) -> Iterator[Path]:
    """Folders of this process's group and of the groups that contain it, since each may have a limit. A
    container may see its own group as the root, under which the path in /proc does not exist. In version 2
    the name of the controller is empty."""
    try:
        lines = OWN.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:  # not Linux, or the file is hidden: no limit is known
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            group = PurePosixPath(path)
            yield from (MOUNTED / controller / str(each).lstrip("/") for each in (group, *group.parents))


def _numbers(file: Path) -> list[float]:
    """The numbers in a file; none if there is no such file. "max" is infinite."""
    try:
        return [math.inf if word == "max" else float(word) for word in file.read_text().split()]
    except OSError:
        return []


def _ratio(quota: float = math.inf, period: float = 1.0) -> float:
    """Quota over period, both in microseconds; infinite without a quota, which version 1 writes as -1."""
    return quota / period if quota > 0 and period > 0 else math.inf
