"""The shared file system, against cases that are computed by hand."""

from __future__ import annotations

import pytest
import simpy

from aiperf.pretending.assumptions import Storage
from aiperf.simulation.storage import SharedStorage


def ends(storage: Storage, transfers: list[tuple[float, float]], clients_a_node: int = 1) -> list[float]:
    """When each (start, bytes) is over."""
    env = simpy.Environment()
    shared, found = SharedStorage(env, storage, clients_a_node), [0.0] * len(transfers)

    def client(index: int, start: float, content: float) -> simpy.events.ProcessGenerator:
        yield env.timeout(start)
        yield shared.transfer(content)
        found[index] = env.now

    for index, (start, content) in enumerate(transfers):
        env.process(client(index, start, content))
    env.run()
    return found


def test_a_transfer_alone_has_the_bandwidth_of_its_node() -> None:
    assert ends(Storage(100.0, 20.0, 0.0), [(1.0, 60.0)]) == pytest.approx([4.0])
    assert ends(Storage(100.0, 20.0, 0.0), [(1.0, 60.0)], clients_a_node=2) == pytest.approx([7.0])


def test_transfers_share_evenly_whenever_they_begin() -> None:
    # Alone for 1 s at 100; then both at 50: the second has 100 at 3 s, the first still 100 of its 300 then.
    assert ends(Storage(100.0, 100.0, 0.0), [(0.0, 300.0), (1.0, 100.0)]) == pytest.approx([4.0, 3.0])
    # Four at once, of which the file system is the limit: 40 bytes each at 10 bytes per second.
    assert ends(Storage(40.0, 20.0, 0.0), [(0.0, 40.0)] * 4) == pytest.approx([4.0] * 4)
