"""The share of a run's work that was not credited, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiperf.journal.events import Closed, Ended, GroupLost, LegEnded, Released, Stepped
from aiperf.score.lineage import recount
from aiperf.score.score import score
from aiperf.wire.trial import State
from analysis.exports.summary import FAILED, LATE, LOST, NOT_APPLIED, OPEN, REPEATED, uncredited_text
from tests.aiperf.rules.forged import each, one, places, until
from tests.journals import Scene, Timed, replayed, told, within

TIMED = told(Scene(minutes=0.15))


def text(timed: list[Timed]) -> list[str]:
    run = replayed(timed)
    return uncredited_text(run, score(run, recount(run).counts))


def late() -> list[Timed]:
    """The last validation of each group ends 2.5 s after the deadline."""
    deadline = one(Released, TIMED).deadline
    last = {place for place in places(TIMED, Closed) if place > places(TIMED, Closed)[-3]}
    return [
        (t, replace(event, end=deadline + 2.5) if place in last and isinstance(event, Closed) else event)
        for place, (t, event) in enumerate(TIMED)
    ]


def lost() -> list[Timed]:
    """Both groups in the middle of a segment."""
    begun = TIMED[: places(TIMED, Stepped)[-1] + 1]
    t = begun[-1][0]
    return [*begun, (t, GroupLost(0, "dead")), (t, GroupLost(1, "dead")), (t, LegEnded("error: lost", t))]


def failed() -> list[Timed]:
    begun = TIMED[: places(TIMED, Stepped)[-1] + 1]
    last = begun[-1][1]
    assert isinstance(last, Stepped)
    end = within(one(Ended, TIMED), trial=last.block.trial, state=State.FAILED, kept=None)
    return [*begun, (begun[-1][0], end)]


CASES = {
    LATE: late,
    LOST: lost,
    FAILED: failed,
    OPEN: lambda: until(Closed, TIMED),
    REPEATED: lambda: told(Scene(minutes=0.3, lost=((0, 14.0),))),
    NOT_APPLIED: lambda: each(Stepped, lambda e: within(e, loss=None))(TIMED),
}


@pytest.mark.parametrize("why", CASES)
def test_the_reason_is_told_with_its_share(why: str) -> None:
    (line,) = text(CASES[why]())
    share, _, reasons = line.partition(" of the operations done: ")
    assert share.endswith(" %")
    shares = [float(each.split(" %")[0]) for each in reasons.split("; ")]
    assert sum(shares) == pytest.approx(float(share.split(" %")[0]), abs=0.2)
    assert f" % {why}" in reasons
    assert (", the last one by 2.5 s" in line) == (why == LATE)


def test_a_run_that_was_credited_has_no_such_line() -> None:
    assert text(TIMED) == []
