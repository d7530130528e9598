"""The rung at which controls of several ranks, or runs, are compared."""

from __future__ import annotations

from dataclasses import replace

from aiperf.score.rungs import Controls, at_common_rung, comparable
from aiperf.wire.reports import Control, Rung
from tests.tables import ComesTo

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


def common(*runs: list[list[Timed]]) -> list[dict[int, Timed]] | None:
    """By rank, of each run."""
    found = at_common_rung([controls(*ranks) for ranks in runs])
    assert all(one.examples_per_second == one.batch_size for each in found or () for one in each.values())
    return found and [
        {rank: (one.network, one.size, one.batch_size) for rank, one in each.items()} for each in found
    ]


def test_the_largest_that_all_have(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("rungs.txt", globals())


def test_ranks_without_a_common_one_are_as_they_were_measured() -> None:
    both = controls(MANY[-1:], SOME[-1:])
    assert comparable(both) == both
