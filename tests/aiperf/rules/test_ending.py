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
from aiperf.rules.ending import Answer, Shortfall, can_go_on, shortfall
from aiperf.rules.rule import Kind, Outcome
from aiperf.rules.verdict import RunClass, Verdict
from aiperf.score.credit import credit
from aiperf.wire.messages import NOTHING_KEPT
from aiperf.wire.trial import State
from tests.aiperf.rules.forged import each, failed, found, judged, one, places, said, until, without
from tests.journals import RELEASE, Scene, Timed, of_origin, replayed, told, within

TIMED, LONGER = told(Scene(minutes=0.15)), told(Scene(minutes=0.5))
DEAD = "the worker (process 7) was killed by signal 9"
ALL_LOST = GroupLost(0, DEAD), GroupLost(1, DEAD)
RESUMED = "`aiperf-hpc resume RUN` continues it"


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
NO_CLOCK, NO_TEST = "the clock never started: ", "no network was tested: "
FAILURE = f"{NO_TEST}no trial was validated; the first failure, trial 0: the loss is nan"
STOPPED_EARLY, NONE_ENDED = StoppedEarly("interrupted"), "no validation ended before the "
FULL = "every trial fails for the same reason: a is full; free it"

NO_RESULT = {
    "lost early": (over(NEVER, "error: group 1 was lost before the clock"), f"{NO_CLOCK}group 1 was lost"),
    "stopped early": (over(NEVER, f"error: {STOPPED_EARLY}"), f"{NO_CLOCK}interrupted; {RESUMED}"),
    "no rank came up": (over(NO_RANK, "error: not in time"), f"{NO_CLOCK}not in"),
    "every group lost": (lost(FIRST_STEP), f"every group was lost; the first, group 0: {DEAD}"),
    "every group lost after trials": (lost(NOT_ENDED), "every group was lost; the first, group 0"),
    "an error": (over(NOT_ENDED, "error: no space left"), "the run ended with an error: no space left"),
    "interrupted at once": (over(FIRST_STEP, "interrupted", *ALL_LOST), f"{NONE_ENDED}interrupt; {RESUMED}"),
    "nothing but failures": (over(failing(), "interrupted"), FAILURE),
    "every trial fails": (over(failing(), f"error: {FULL}"), f"{FULL}; fix this, then start a new run"),
    "failures until the deadline": ([*failing(), (21.0, LegEnded("deadline", 21.0))], f"{FAILURE}; fix"),
    "no time": (told(Scene(minutes=0.001)), f"{NONE_ENDED}deadline; start a new run with more"),
    "nothing kept": (unkept(), f"{NO_TEST}the first validation ended too late for its network to be kept"),
    "untested": (UNTESTED, f"{NO_TEST}the test did not finish; {RESUMED} and tests the"),
}


@pytest.mark.parametrize(("timed", "cause"), NO_RESULT.values(), ids=NO_RESULT)
def test_a_run_that_ended_with_nothing_has_no_result_and_the_first_cause(
    timed: list[Timed], cause: str
) -> None:
    verdict = judged(timed)
    assert verdict.failed(Kind.INTEGRITY) == []
    assert verdict.answer is Answer.NO_RESULT
    assert verdict.cause.startswith(cause)
    assert (verdict.valid, verdict.run_class) == (False, None)


IN_PROGRESS = "the run is in progress, or was killed; if it was killed, "
WARNED = "the run was stopped by its scheduler or launcher; "
INCOMPLETE = {
    "not begun": (TIMED[:1], "the run has not started, or was killed before; if it was killed, "),
    "before the clock": (NEVER, IN_PROGRESS),
    "in the span": (until(Closed, LONGER), IN_PROGRESS),
    "at its end": (NOT_ENDED, IN_PROGRESS),
    "warned": (over(until(Closed, LONGER), "terminated", *ALL_LOST), WARNED),
    "warned before the clock": (over(NEVER, f"error: {StoppedEarly('terminated')}"), WARNED),
}


@pytest.mark.parametrize(("timed", "cause"), INCOMPLETE.values(), ids=INCOMPLETE)
def test_a_run_that_is_to_go_on_is_incomplete_and_says_how(timed: list[Timed], cause: str) -> None:
    verdict = judged(timed)
    assert verdict.answer is Answer.INCOMPLETE
    assert verdict.cause == f"{cause}{RESUMED}"
    assert can_go_on(replayed(timed))


def lacking(timed: list[Timed], credited: bool = True, growing: bool = False) -> Shortfall:
    lack = shortfall(replayed(timed), credited, growing=growing)
    assert lack is not None
    return lack


def test_what_resume_would_refuse_is_not_said_to_go_on() -> None:
    """Its time was over when it was killed, and there is nothing to test."""
    over = [*then(FIRST_STEP, *ALL_LOST), (99.0, GroupLost(0, DEAD))]
    assert not can_go_on(replayed(over))
    text = lacking(over, credited=False).text
    assert text.endswith("if it was killed, it has no time left: start a new run")
    warned = lacking([*over, (99.0, LegEnded("terminated", 99.0))], credited=False)
    text = "no validation ended before the run was stopped; start a new run with more --minutes"
    assert (warned.answer, warned.text) == (Answer.NO_RESULT, text)


def test_a_test_that_goes_on_has_not_failed_while_its_journal_grows_and_a_group_may_do_it() -> None:
    testing = lacking(UNTESTED, growing=True)
    assert (testing.answer, testing.text) == (Answer.INCOMPLETE, "the best network is being tested")
    assert lacking(then(UNTESTED, *ALL_LOST), growing=True).answer is Answer.NO_RESULT


def test_after_an_error_nothing_is_tested() -> None:
    """As where its disk was full: its journal grew a moment ago, and its processes are gone."""
    text = f"the run ended with an error: no space left; {RESUMED} and tests the best network"
    assert lacking(NO_RESULT["an error"][0], growing=True).text == text


@pytest.mark.parametrize("name", [*NO_RESULT, *INCOMPLETE])
def test_a_contradiction_makes_a_run_invalid_whatever_else_it_lacks(name: str) -> None:
    timed, _ = (NO_RESULT | INCOMPLETE)[name]
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


def test_a_tested_network_without_credited_work_is_no_result() -> None:
    """Every segment has a step that was not applied."""
    timed = said(Stepped, loss=None)(TIMED)
    assert not credit(replayed(timed)).any
    verdict = judged(timed)
    assert verdict.shortfall is not None
    assert verdict.shortfall.text == "no segment was credited"


NOT_AT_HAND = {"witnesses", "weights", "complete"}
NOT_AT_HAND |= {f"ranked {name}" for name in ("disturbance", "devices", "fabric", "coupled")}
OF_WORK = {"steps", "examples", "accuracy", "speed", "ranked error", "ranked speed", "ranked segments"}
OF_TRIALS = OF_WORK | {"times", "lineage", "operations", "bounds", "search"}
OF_THE_CLOCK = OF_TRIALS | {"span", "ranks", "code", "clocks", "precision", "initialisation"}
OF_THE_CLOCK |= {"ranked span", "ranked trials", "ranked control"}
OF_RANKS = OF_THE_CLOCK | {"data", "measurements", "ranked data"}


@pytest.mark.parametrize(
    ("timed", "rules"),
    [
        (TIMED, set()),
        (until(Stepped, TIMED), OF_WORK),
        (then(NEVER, one(Released, TIMED)), OF_TRIALS),
        (NEVER, OF_THE_CLOCK),
        (over(NEVER, "error: killed"), OF_THE_CLOCK),
        (until(RankReady, TIMED), OF_RANKS),
        (until(LegBegan, TIMED), OF_RANKS),
    ],
    ids=["whole", "no step", "no trial", "no clock", "ended before the clock", "no rank", "no leg"],
)
def test_a_rule_that_looked_at_nothing_is_unknown(timed: list[Timed], rules: set[str]) -> None:
    unknown = {f.rule for f in judged(timed).findings if f.outcome is Outcome.UNKNOWN}
    assert unknown - NOT_AT_HAND == rules


# Runs that were not measured are never VALID, whatever the rules find


def contradicted(timed: list[Timed]) -> list[Timed]:
    return each(Opened, lambda event: replace(event, code_hash="f" * 64))(timed)


@pytest.mark.parametrize("origin", [origin for origin in Origin if origin is not Origin.MEASURED])
class TestARunThatWasNotMeasured:
    def test_is_simulated_where_else_it_were_valid(self, origin: Origin) -> None:
        measured, verdict = judged(TIMED), judged(of_origin(TIMED, origin))
        assert (measured.answer, measured.run_class) == (Answer.VALID, RunClass.SMOKE)
        assert (verdict.answer, verdict.run_class, verdict.valid) == (Answer.SIMULATED, None, False)
        assert verdict.cause.startswith(f"the run is {origin.value}: no network was trained")
        assert verdict.findings == measured.findings
        passed = tuple(replace(finding, outcome=Outcome.PASSED) for finding in measured.findings)
        assert Verdict(passed, origin=origin).run_class is None

    def test_is_simulated_where_else_it_were_invalid(self, origin: Origin) -> None:
        wrong = contradicted(TIMED)
        assert judged(wrong).answer is Answer.INVALID
        verdict = judged(of_origin(wrong, origin))
        assert verdict.answer is Answer.SIMULATED
        assert [finding.rule for finding in verdict.failed(Kind.INTEGRITY)] == ["code"]
        mark, rule = f"the run is {origin.value}: ", "; code: "
        assert 0 == verdict.cause.index(mark) < verdict.cause.index(rule)

    @pytest.mark.parametrize(
        ("timed", "answer"),
        [(NOT_ENDED, Answer.INCOMPLETE), (over(FIRST_STEP, "deadline"), Answer.NO_RESULT)],
        ids=["cut off", "without a validation"],
    )
    def test_lacks_what_any_run_would(self, timed: list[Timed], answer: Answer, origin: Origin) -> None:
        verdict = judged(of_origin(timed, origin))
        assert verdict.shortfall is not None
        assert verdict.answer is answer
        assert verdict.cause.startswith(f"{verdict.shortfall.text}; the run is {origin.value}: ")
        if origin is Origin.SIMULATED:
            assert "resume" not in verdict.cause

    def test_is_continued_only_by_workers_that_pretend(self, origin: Origin) -> None:
        assert can_go_on(replayed(NOT_ENDED))
        assert can_go_on(replayed(of_origin(NOT_ENDED, origin))) is (origin is Origin.PRETENDED)


def test_a_mark_that_a_later_line_takes_back_stays() -> None:
    timed = of_origin(TIMED, Origin.SIMULATED)
    assert judged([timed[0], TIMED[0], *timed[1:]]).answer is Answer.SIMULATED


@pytest.mark.parametrize(
    ("origin", "way"),
    [
        (Origin.MEASURED, RESUMED),
        (Origin.PRETENDED, "`aiperf-hpc resume RUN --pretend RUN/assumptions.toml` continues it"),
        (Origin.SIMULATED, ""),
    ],
)
def test_the_way_on_that_is_named_is_one_that_there_is(origin: Origin, way: str) -> None:
    cut_off = way or "it is not continued: start a new run"
    assert lacking(of_origin(NOT_ENDED, origin)).text.endswith(f"if it was killed, {cut_off}")
    tests = f"; {way} and tests the best network" if way else ""
    text = f"no network was tested: the test did not finish{tests}"
    assert lacking(of_origin(UNTESTED, origin)).text == text
