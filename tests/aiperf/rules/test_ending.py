"""Runs without a result: what is said of them, why, and how they go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiperf.errors import StoppedEarly
from aiperf.journal import events
from aiperf.journal.events import (
    Closed,
    Dispatched,
    Ended,
    Event,
    GroupLost,
    LegBegan,
    LegEnded,
    Opened,
    Origin,
    RankReady,
    Released,
    Stepped,
)
from aiperf.rules.ending import Answer, can_go_on, shortfall
from aiperf.rules.rule import Kind, Outcome
from aiperf.rules.verdict import Verdict
from aiperf.wire.reports import NOTHING_KEPT
from aiperf.wire.trial import State
from tests.aiperf.rules.forged import each, failed, found, judged, one, places, said, until, without
from tests.journals import RELEASE, Scene, Timed, of_origin, replayed, told, within
from tests.tables import ComesTo

TIMED, LONGER = told(Scene(minutes=0.15)), told(Scene(minutes=0.5))
DEAD = "the worker (process 7) was killed by signal 9"
ALL_LOST = GroupLost(0, DEAD), GroupLost(1, DEAD)


def then(timed: list[Timed], *following: Event) -> list[Timed]:
    """With further lines, at the time of the last one."""
    t = timed[-1][0]
    ended = [replace(event, end=t) if isinstance(event, LegEnded) else event for event in following]
    return [*timed, *((t, event) for event in ended)]


def over(timed: list[Timed], reason: str, *before: Event) -> list[Timed]:
    """The run so far, whose leg then ends for that reason."""
    return then(timed, *before, LegEnded(reason, 0.0))


def lost(timed: list[Timed]) -> list[Timed]:
    silent = GroupLost(1, "it said nothing")
    return over(timed, "error: every group is lost", GroupLost(0, DEAD), silent)


def failing() -> list[Timed]:
    """The first trial of each group fails at once."""
    begun = until(Stepped, TIMED)
    ended = replace(one(Ended, TIMED), end=begun[-1][0])
    failure = within(ended, state=State.FAILED, reason="the loss is nan", kept=None)
    numbers = [event.trial.number for _, event in begun if isinstance(event, Dispatched)]
    return then(begun, *(within(failure, trial=number) for number in numbers))


def unkept() -> list[Timed]:
    """The first validation ends just before the deadline: in time for the journal, too late for its group."""
    timed = told(Scene(minutes=(one(Closed, TIMED).end - RELEASE + 0.01) / 60))
    return without(said(Ended, kept=NOTHING_KEPT)(timed), events.Tested)


UNTESTED, NEVER, FIRST_STEP = (until(kind, TIMED) for kind in (events.Tested, Released, Closed))
NOT_ENDED, NO_RANK = until(LegEnded, TIMED), until(RankReady, TIMED)
FULL = "every trial fails for the same reason: a is full; free it"

ENDINGS = {
    "lost early": over(NEVER, "error: group 1 was lost before the clock"),
    "stopped early": over(NEVER, f"error: {StoppedEarly('interrupted')}"),
    "no rank came up": over(NO_RANK, "error: not in time"),
    "every group lost": lost(FIRST_STEP),
    "every group lost after trials": lost(NOT_ENDED),
    "an error": over(NOT_ENDED, "error: no space left"),
    "interrupted at once": over(FIRST_STEP, "interrupted", *ALL_LOST),
    "nothing but failures": over(failing(), "interrupted"),
    "every trial fails": over(failing(), f"error: {FULL}"),
    "failures until the deadline": [*failing(), (21.0, LegEnded("deadline", 21.0))],
    "no time": told(Scene(minutes=0.001)),
    "nothing kept": unkept(),
    "untested": UNTESTED,
    "not begun": TIMED[:1],
    "before the clock": NEVER,
    "in the span": until(Closed, LONGER),
    "at its end": NOT_ENDED,
    "warned": over(until(Closed, LONGER), "terminated", *ALL_LOST),
    "warned before the clock": over(NEVER, f"error: {StoppedEarly('terminated')}"),
}


def ends(name: str) -> tuple[str, str]:
    verdict = judged(ENDINGS[name])
    assert verdict.failed(Kind.INTEGRITY) == []
    assert (verdict.valid, verdict.run_class) == (False, None)
    if verdict.answer is Answer.INCOMPLETE:
        assert can_go_on(replayed(ENDINGS[name]))
    return verdict.answer.name, verdict.cause


NO_TIME_LEFT = [*then(FIRST_STEP, *ALL_LOST), (99.0, GroupLost(0, DEAD))]
"""Its time was over when it was killed, and there is nothing to test."""


def lacking(timed: list[Timed], credited: bool = True, growing: bool = False) -> tuple[str, str]:
    lack = shortfall(replayed(timed), credited, growing=growing)
    assert lack is not None
    return lack.answer.name, lack.text


def unknown(timed: list[Timed]) -> str:
    """The rules that had nothing to look at."""
    return " · ".join(f.rule for f in judged(timed).findings if f.outcome is Outcome.UNKNOWN)


def unmeasured(timed: list[Timed], origin: Origin) -> tuple[str, str]:
    """What is said of a run that was not measured: the rules find what they would, and it is never valid."""
    verdict = judged(of_origin(timed, origin))
    assert verdict.findings == judged(timed).findings
    assert (verdict.valid, verdict.run_class) == (False, None)
    return verdict.answer.name, verdict.cause


def test_a_run_that_ended_with_nothing_has_the_first_cause_and_one_that_is_to_go_on_says_how(
    comes_to_what_was_read: ComesTo,
) -> None:
    """The way on that is named is one that there is. A test that goes on has not failed while the journal
    grows and a group may do it; after an error nothing is tested: the processes are gone. A rule that looked
    at nothing is unknown."""
    assert not can_go_on(replayed(NO_TIME_LEFT))
    comes_to_what_was_read("endings.txt", globals())


@pytest.mark.parametrize("name", ENDINGS)
def test_a_contradiction_makes_a_run_invalid_whatever_else_it_lacks(name: str) -> None:
    timed = ENDINGS[name]
    wrong = each(RankReady, lambda e: within(e, code_hash="other") if e.ready.rank == 1 else e)(timed)
    verdict = judged(wrong)
    assert (verdict.answer is Answer.INVALID) == bool(places(timed, Released))
    if verdict.answer is Answer.INVALID:
        assert verdict.cause == "code: rank 1 on node1 ran different code"


def test_a_leg_that_was_refused_before_its_clock_contradicts_nothing() -> None:
    """A start on hosts whose clocks or images are wrong is refused; the next one is right."""

    def wrong(event: RankReady) -> Event:
        other: RankReady = within(event, code_hash="other", data={**event.ready.data, "sha256": "other"})
        return replace(other, clock_offset_seconds=9.0)

    def later(timed: list[Timed], index: int) -> list[Timed]:
        return each(LegBegan, lambda event: replace(event, index=index))(timed)

    killed, whole = told(Scene(minutes=0.4, killed_at=20.0)), told(Scene(minutes=0.4))
    second = places(killed, LegBegan)[1]
    refused = over(each(RankReady, wrong)(killed[second : second + 3]), "error: clocks")
    assert failed([*killed[:second], *refused, *later(killed[second:], 2)]) == {}
    first = over(each(RankReady, wrong)(killed[:4]), "error: data")
    assert failed([*first, *later(whole[1:], 1)]) == {}
    for ready in (0, 1):  # killed before all its ranks were ready: all work is compared with the bound, too
        short = killed[second : second + 1 + ready]
        resumed = [*killed[:second], *short, *later(killed[second:], 2)]
        assert [found(resumed, rule) for rule in ("speed", "measurements")] == [
            found(killed, rule) for rule in ("speed", "measurements")
        ]


def contradicted(timed: list[Timed]) -> list[Timed]:
    return each(Opened, lambda event: replace(event, code_hash="f" * 64))(timed)


@pytest.mark.parametrize("origin", [origin for origin in Origin if origin is not Origin.MEASURED])
def test_what_was_not_measured_is_never_valid_and_only_workers_that_pretend_go_on(origin: Origin) -> None:
    passed = tuple(replace(finding, outcome=Outcome.PASSED) for finding in judged(TIMED).findings)
    assert Verdict(passed, origin=origin).run_class is None
    assert can_go_on(replayed(NOT_ENDED))
    assert can_go_on(replayed(of_origin(NOT_ENDED, origin))) is (origin is Origin.PRETENDED)
