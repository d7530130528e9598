"""Which trials are in flight, and whose they are."""

from __future__ import annotations

from dataclasses import replace

from aiperf.journal.events import Dispatched
from aiperf.proposing.jobs import InFlight, OpenTrial
from nas.seeds import residual
from tests.journals import Scene, told

JOB = next(event for _, event in told(Scene(minutes=0.1)) if isinstance(event, Dispatched))


def test_what_one_group_has_is_not_what_all_have() -> None:
    """As of group 0, which is as much a group as any other."""
    found = InFlight()
    for number, group in ((0, 0), (1, 1), (2, 0)):
        job = replace(JOB, trial=replace(JOB.trial, number=number), group=group)
        found.put(OpenTrial(job, residual()))
    assert (found.numbers(), found.numbers(0), found.numbers(1)) == ([0, 1, 2], [0, 2], [1])
    assert found.numbers(2) == []
    assert found.take(0).job.group == 0
    assert (found.numbers(), found.numbers(0)) == ([1, 2], [2])
    assert 0 not in found
