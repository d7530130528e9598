"""The rung at which controls of several ranks, or runs, are compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiperf.score.rungs import Controls, at_common_rung, comparable
from aiperf.wire.messages import Control, Rung

Timed = tuple[str, int, int]
"""Network, size and batch, in steps of a second: this many examples per second as the batch has."""


def controls(*ranks: list[Timed]) -> Controls:
    """The last of each rank is its own."""
    found = {}
    for rank, timed in enumerate(ranks, 1):
        *others, own = [Rung(size, batch, 3, 3.0, network) for network, size, batch in timed]
        control = Control(rank, "node1", "a CPU", own.batch_size, 3, 3.0, own.batch_size)
        found[rank] = replace(control, size=own.size, network=own.network, others=tuple(others))
    return found


FEW: list[Timed] = [("", 32, 2)]
SOME: list[Timed] = [*FEW, ("", 32, 8), ("", 64, 8)]
MANY: list[Timed] = [*SOME, ("", 112, 8)]
SMALL: list[Timed] = [("gpt-4x128", 64, 12)]
LARGE: list[Timed] = [*SMALL, ("", 1024, 1)]


@pytest.mark.parametrize(
    ("runs", "own"),
    [
        ([[SOME], [MANY]], [{1: ("", 64, 8)}] * 2),
        ([[MANY, SOME], [MANY, MANY]], [{1: ("", 64, 8), 2: ("", 64, 8)}] * 2),
        ([[FEW], [MANY]], [{1: ("", 32, 2)}] * 2),
        ([[SMALL], [LARGE]], [{1: ("gpt-4x128", 64, 12)}] * 2),
        ([[LARGE], [LARGE]], [{1: ("", 1024, 1)}] * 2),
        # What older journals have: one size each.
        ([[MANY[-1:]], [SOME[-1:]]], None),
        ([[SMALL], [LARGE[-1:]]], None),
        ([[[("", 32, 8)]], [FEW]], None),
        ([[], []], None),
    ],
)
def test_the_largest_that_all_have(runs: list[list[list[Timed]]], own: list[dict[int, Timed]] | None) -> None:
    found = at_common_rung([controls(*ranks) for ranks in runs])
    assert own == (
        None
        if found is None
        else [{rank: (one.network, one.size, one.batch_size) for rank, one in each.items()} for each in found]
    )
    for each in found or ():
        assert all(one.examples_per_second == one.batch_size for one in each.values())


def test_ranks_without_a_common_one_are_as_they_were_measured() -> None:
    both = controls(MANY[-1:], SOME[-1:])
    assert comparable(both) == both
