"""The cores of a host that are near a device, to which a rank that trains on it narrows itself.

Launchers often give ranks consecutive cores in the order of their numbers. Some hosts order devices otherwise
(the dies of LUMI's MI250X lie on the NUMA nodes 3, 3, 1, 1, 0, 0, 2, 2: LUMI documentation, "LUMI-G"),
and a master on the first node shifts its ranks by one.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Set
from pathlib import Path

from nas.bounded import system_text

MOST_CORES = 1 << 16
"""A list with a core of this number or a larger one is not believed: no host has as many."""


def stay_near(address: str, root: Path = Path("/")) -> str:
    """Narrows all threads of this process to those of their cores that are near the device with this PCI
    address. Returns these as the kernel lists them, such as "0-7,16", or "none of 0-7,16" if the process has
    no core that is near; empty if nothing is known, or all of its cores are near."""
    near, given = near_cores(address, root), os.sched_getaffinity(0)
    own = set(near & given)
    if own == given or not near:
        return ""
    if not own:
        return f"none of {listed(near)}"
    for thread in map(int, os.listdir("/proc/self/task")):
        with contextlib.suppress(ProcessLookupError):  # it has ended since it was listed
            if narrowed := own & os.sched_getaffinity(thread):
                os.sched_setaffinity(thread, narrowed)
    return listed(own)


def near_cores(address: str, root: Path) -> frozenset[int]:
    """Cores of the NUMA node of a PCI device (Linux, Documentation/ABI/testing/sysfs-bus-pci, numa_node;
    sysfs-devices-node, cpulist); none if the kernel does not know the node, as on hosts with one."""
    if not address:
        return frozenset()
    node = system_text(root / "sys/bus/pci/devices" / address / "numa_node").strip()
    if not re.fullmatch(r"[0-9]{1,4}", node):  # -1 if it is unknown
        return frozenset()
    return numbered(system_text(root / f"sys/devices/system/node/node{node}/cpulist"))


def numbered(text: str) -> frozenset[int]:
    """The numbers of a list such as "0-7,16"; none if it is not one."""
    found = set[int]()
    for part in text.strip().split(","):
        ends = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
        if ends is None or int(ends[2] or ends[1]) >= MOST_CORES:
            return frozenset()
        found |= set(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    return frozenset(found)


def listed(numbers: Set[int]) -> str:
    """The numbers as a list such as "0-7,16"."""
    parts = list[list[int]]()
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)
