"""A rank stays on cores near its device, and on those that it was given."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from aiperf.device import near_cores
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
