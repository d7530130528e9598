"""What disturbed a run, from intervals that reach beyond its span, in several legs and on several hosts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aiperf.journal.events import HostUsed, LegEnded, Released
from aiperf.journal.replay import Replay
from aiperf.score.disturbance import HostDisturbance, disturbances, most_disturbed
from aiperf.wire.reports import HostUse
from analysis.readings.disturbance import disturbance_text, others_over_time
from tests.journals import ready_alone, replayed
from tests.tables import ComesTo

BUSY = HostUse(1, 10.0, 20.0, 12.0, 4.0, 1.0, 0.0)
"""Others take four of twenty CPU seconds, one of them the hypervisor."""
QUIET = replace(BUSY, own=19.0, idle=1.0, stolen=0.0)


def run(*legs: list[tuple[float, HostUse]], hosts: int = 1, rules: int = 2) -> Replay:
    """A run whose legs are timed from 100 s to 130 s; `legs`: the end of each interval, and what it was."""
    timed = []
    for number, uses in enumerate(legs):
        timed += ready_alone(range(1, 1 + hosts), number, rules=rules)
        timed += [(100.0, Released(130.0)), (130.0, LegEnded("deadline", 130.0))]
        timed += [(140.0, HostUsed(use, end)) for end, use in uses]
    found = replayed(timed)
    assert not found.faults
    return found


def test_it_is_told_over_the_span_of_all_legs_by_host() -> None:
    """Two hosts, of which one is disturbed for the first third of the second leg; the last third of that leg
    nobody reported."""
    other = replace(QUIET, rank=2)
    quiet = [(end, use) for end in (110.0, 120.0, 130.0) for use in (QUIET, other)]
    second = [(110.0, BUSY), (110.0, other), (120.0, QUIET), (120.0, other)]
    found = others_over_time(run(quiet, second, hosts=2))
    assert found is not None
    assert found.hosts == 2
    assert found.edges == pytest.approx(10.0 * np.arange(7))
    assert found.most == pytest.approx([0, 0, 0, 0.2, 0, np.nan], nan_ok=True)
    assert found.median == pytest.approx([0, 0, 0, 0.1, 0, np.nan], nan_ok=True)
    assert others_over_time(run([])) is None


THIRDS = [(110.0, QUIET), (120.0, QUIET), (130.0, QUIET)]
BUSY_AND_STOPPED = [(110.0, BUSY), (120.0, replace(BUSY, stolen=0.0, stopped=9.6))]


def disturbed(*legs: list[tuple[float, HostUse]]) -> tuple[object, ...]:
    """What was seen of the span, what others and the hypervisor took, and what is said of it."""
    found = run(*legs)
    (host,) = disturbances(found)
    shares = (round(share, 6) for share in (host.seen, host.others, host.stolen))
    return *shares, disturbance_text(found)


def test_of_each_interval_what_lies_in_the_span_counts(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("disturbance.txt", globals())
    assert disturbance_text(run([], rules=1)) == [], "an older run measured nothing"


def test_nothing_is_known_of_a_host_before_it_happened() -> None:
    found = run([])
    found.add(140.0, HostUsed(replace(QUIET, seconds=30.0), 141.0))
    (fault,) = found.faults
    assert fault.text == "HostUsed of rank 1 ended at 141.000 s, after this line at 140.000 s"
    assert not disturbances(found)[0].known


def test_the_host_that_was_disturbed_most_is_named() -> None:
    whole = [replace(each, seconds=30.0) for each in (QUIET, replace(BUSY, rank=2, stopped=3.0))]
    found = run([(130.0, each) for each in whole], hosts=2)
    other_programs, stops = disturbance_text(found)
    assert stops == "processes of the run were stopped for 3 s on node2"
    assert other_programs == (
        "at most 20.0 % of a host's CPU time went to other programs, including 5.0 % to the hypervisor "
        "(node2; 1 of 2 hosts above 5.0 %)"
    )
    one_unknown = run([(130.0, whole[0])], hosts=2)
    assert most_disturbed(disturbances(one_unknown)) is None
    assert disturbances(one_unknown)[1] == HostDisturbance("node2", 0.0, 0.0, 0.0, 0.0)
