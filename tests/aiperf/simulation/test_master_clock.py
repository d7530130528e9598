"""What is counted of the simulated master's turns, and when."""

from __future__ import annotations

import pytest

from aiperf.pretending.assumptions import Messages
from aiperf.simulation.master_clock import MasterClock

ASSUMED = Messages(seconds=1.0, master_seconds=2.0, proposal_seconds=0.5)


def test_a_candidate_is_of_the_turn_that_it_was_made_in() -> None:
    clock = MasterClock(ASSUMED, measures=True)
    clock.begin_span(None)
    clock.end_turn()
    clock.hear(0.0)
    clock.propose()
    for _ in range(3):
        clock.end_turn()
        clock.hear(0.0)
    total = clock.total
    assert (total.proposed, total.proposing_heard, total.heard, total.requests) == (1, 1, 2, 4)


def test_work_is_counted_between_the_release_and_the_deadline() -> None:
    clock = MasterClock(ASSUMED, measures=False)
    clock.hear(10.0)  # before the release
    clock.begin_span(100.0)  # at 12
    clock.begin_span(1.0)  # a group that was started again has less left; the span stays
    clock.hear(20.0)
    clock.propose()
    clock.hear(21.0)  # waits until 22.5
    assert clock.now == 24.5
    clock.hear(200.0)  # after the deadline, at 112
    assert (clock.total.requests, list(clock.total.waited)) == (2, [0.0, 1.5])
    assert clock.total.busy_seconds == pytest.approx(4.5)
    assert clock.now == 202.0
