"""The share of a run's work that was not credited, and why."""

from __future__ import annotations

from dataclasses import replace

from aiperf.journal.events import Closed, Ended, GroupLost, LegEnded, Released, Stepped
from aiperf.score.lineage import recount
from aiperf.score.score import score
from aiperf.wire.trial import State
from analysis.exports.summary import uncredited_text
from tests.aiperf.rules.forged import each, one, places, until
from tests.journals import Scene, Timed, replayed, told, within
from tests.tables import ComesTo

TIMED = told(Scene(minutes=0.15))


def uncredited(timed: list[Timed]) -> list[str]:
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


def test_the_reason_is_told_with_its_share(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("uncredited.txt", {**globals(), "each": each, "until": until})
