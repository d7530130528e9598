"""A rank stays on cores near its device, and on those that it was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.device import near_cores
from aiperf.device.near_cores import listed, numbered, stay_near

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


@pytest.mark.parametrize(
    ("device", "given", "own"),
    [
        (0, range(32), "12-15,28-31"),
        (2, range(32), "0-3,16-19"),
        (0, [11, 12, 13, 14], "12-14"),  # shifted by a master on this host
        (0, range(4), ""),  # given others alone: kept
        (0, [12, 13], ""),  # near already
        (9, range(32), ""),  # unknown
    ],
)
def test_the_given_cores_are_narrowed_to_those_near(
    device: int, given: list[int], own: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    masks = {thread: set(given) for thread in (0, 7, 8)}  # of this process, and of its threads
    monkeypatch.setattr(near_cores.os, "listdir", lambda path: ["7", "8"])
    monkeypatch.setattr(near_cores.os, "sched_getaffinity", lambda thread: masks[thread])
    monkeypatch.setattr(near_cores.os, "sched_setaffinity", masks.__setitem__)
    assert stay_near(f"0000:c{device}:00.0", root) == own
    assert [listed(masks[thread]) for thread in (7, 8)] == [own or listed(set(given))] * 2


def test_a_list_of_the_kernel_is_read_whole_or_not_at_all() -> None:
    assert numbered("0-2,5\n") == {0, 1, 2, 5}
    assert numbered("") == numbered("-1") == numbered("0-x") == numbered("99999") == frozenset()
