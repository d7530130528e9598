"""What the control groups of this process leave it of its host, as in a container: cgroups(7), 1 and 2."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

OWN = Path("/proc/self/cgroup")
MOUNTED = Path("/sys/fs/cgroup")


def cores() -> float:
    """Seconds of processor in a second; infinite where nothing limits them."""
    second = [_ratio(*_numbers(folder / "cpu.max")) for folder in _folders("")]
    first = [
        _ratio(*_numbers(folder / "cpu.cfs_quota_us"), *_numbers(folder / "cpu.cfs_period_us"))
        for folder in _folders("cpu")
    ]
    return min([*second, *first], default=math.inf)


def memory_bytes() -> float:
    """Infinite where nothing limits it."""
    second = [limit for folder in _folders("") for limit in _numbers(folder / "memory.max")]
    first = [limit for folder in _folders("memory") for limit in _numbers(folder / "memory.limit_in_bytes")]
    return min([*second, *first], default=math.inf)


def _folders(controller: str) -> Iterator[Path]:
    """The group of this process and those that it lies in, for each may have its limit. A container may see
    its own as the root, under which the path that it is given does not exist. Version 2 has no controller."""
    try:
        lines = OWN.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux, or hidden: no limit is known
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            group = PurePosixPath(path)
            yield from (MOUNTED / controller / str(each).lstrip("/") for each in (group, *group.parents))


def _numbers(file: Path) -> list[float]:
    """None where there is no such file; "max" is infinite."""
    try:
        return [math.inf if word == "max" else float(word) for word in file.read_text().split()]
    except OSError:
        return []


def _ratio(quota: float = math.inf, period: float = 1.0) -> float:
    """A quota of -1 is none."""
    return quota / period if quota > 0 and period > 0 else math.inf
