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
    RankReady,
    Released,
    Stepped,
)
from aiperf.journal.replay import Replay
from aiperf.rules.ending import Answer, can_go_on, shortfall
from aiperf.rules.rule import Kind, Outcome
from aiperf.rules.verdict import Verdict, judge
from aiperf.score.credit import credit
from aiperf.trial import State
from aiperf.wire.messages import NOTHING_KEPT
from tests.journals import RELEASE, Scene, Timed, told, within

TIMED, LONGER = told(Scene(minutes=0.15)), told(Scene(minutes=0.5))
DEAD = "the worker (process 7) was killed by signal 9"


def replayed(timed: list[Timed]) -> Replay:
    replay = Replay()
    for t, event in timed:
        replay.add(t, event)
    return replay


def verdict_on(timed: list[Timed]) -> Verdict:
    return judge(replayed(timed), None)


def until(kind: type[Event], timed: list[Timed] = TIMED) -> list[Timed]:
    """The lines above the first one of a kind."""
    return timed[: next(place for place, (_, event) in enumerate(timed) if isinstance(event, kind))]


def then(timed: list[Timed], *following: Event) -> list[Timed]:
    """With further lines, at the time of the last one."""
    t = timed[-1][0]
    ended = [replace(event, end=t) if isinstance(event, LegEnded) else event for event in following]
    return [*timed, *((t, event) for event in ended)]


def lost(timed: list[Timed]) -> list[Timed]:
    return then(
        timed, GroupLost(0, DEAD), GroupLost(1, "it said nothing"), _end("error: every group is lost")
    )


def _end(reason: str) -> LegEnded:
    return LegEnded(reason, 0.0)


def failing() -> list[Timed]:
    """The first trial of each group fails at once, and then somebody presses Ctrl-C."""
    begun = [*until(Stepped)]
    jobs = [event.trial.number for _, event in begun if isinstance(event, Dispatched)]
    failed = next(event for _, event in TIMED if isinstance(event, Ended))
    failed = replace(
        within(failed, state=State.FAILED, reason="the loss is nan", kept=None), end=begun[-1][0]
    )
    ends = [within(failed, trial=number) for number in jobs]
    return then(begun, *ends, _end("interrupted"))


def unkept() -> list[Timed]:
    """The first validation ends just before the deadline: in time for the journal, too late for its group."""
    end = next(event.end for _, event in TIMED if isinstance(event, Closed))
    timed = told(Scene(minutes=(end - RELEASE + 0.01) / 60))
    timed = [(t, within(e, kept=NOTHING_KEPT) if isinstance(e, Ended) else e) for t, e in timed]
    return [line for line in timed if not isinstance(line[1], events.Tested)]


UNTESTED = until(events.Tested)
NEVER = until(Released)
FIRST_STEP = until(Closed)

NO_RESULT = {
    "lost before the clock": (
        then(NEVER, _end("error: group 1 was lost before the clock started: killed")),
        "the clock never started: group 1 was lost",
    ),
    "interrupted before the clock": (
        then(NEVER, _end(f"error: {StoppedEarly('interrupted')}")),
        "the clock never started: interrupted; `aiperf-hpc resume RUN` continues it",
    ),
    "no rank came up": (
        then(until(RankReady), _end("error: not in time")),
        "the clock never started: not in",
    ),
    "every group lost": (lost(FIRST_STEP), f"every group was lost; the first, group 0: {DEAD}"),
    "every group lost after trials": (lost(until(LegEnded)), "every group was lost; the first, group 0"),
    "an error": (
        then(until(LegEnded), _end("error: no space left")),
        "the run ended with an error: no space left",
    ),
    "interrupted at once": (
        then(FIRST_STEP, GroupLost(0, DEAD), GroupLost(1, DEAD), _end("interrupted")),
        "no validation ended before the interrupt; `aiperf-hpc resume RUN` continues it",
    ),
    "nothing but failures": (
        failing(),
        "no network was tested: no trial was validated; the first failure, trial 0: the loss is nan",
    ),
    "no time": (
        told(Scene(minutes=0.001)),
        "no validation ended before the deadline; start a new run with more --minutes",
    ),
    "nothing kept": (
        unkept(),
        "no network was tested: the first validation ended too late for its network to be kept",
    ),
    "untested": (
        UNTESTED,
        "no network was tested: the test did not finish; `aiperf-hpc resume RUN` continues it and tests the",
    ),
}


@pytest.mark.parametrize(("timed", "cause"), NO_RESULT.values(), ids=NO_RESULT)
def test_a_run_that_ended_with_nothing_has_no_result_and_the_first_cause(
    timed: list[Timed], cause: str
) -> None:
    verdict = verdict_on(timed)
    assert verdict.failed(Kind.INTEGRITY) == []
    assert verdict.answer is Answer.NO_RESULT
    assert verdict.cause.startswith(cause)
    assert (verdict.valid, verdict.run_class) == (False, None)


INCOMPLETE = {
    "not begun": (TIMED[:1], "the run has not started, or was killed before; if it was killed, "),
    "before the clock": (NEVER, "the run is in progress, or was killed; if it was killed, "),
    "in the span": (until(Closed, LONGER), "the run is in progress, or was killed; if it was killed, "),
    "warned": (
        then(until(Closed, LONGER), GroupLost(0, DEAD), GroupLost(1, DEAD), _end("terminated")),
        "the run was stopped by the scheduler; ",
    ),
    "warned before the clock": (
        then(NEVER, _end(f"error: {StoppedEarly('terminated')}")),
        "the run was stopped by the scheduler; ",
    ),
}


@pytest.mark.parametrize(("timed", "cause"), INCOMPLETE.values(), ids=INCOMPLETE)
def test_a_run_that_is_to_go_on_is_incomplete_and_says_how(timed: list[Timed], cause: str) -> None:
    verdict = verdict_on(timed)
    assert verdict.answer is Answer.INCOMPLETE
    assert verdict.cause == f"{cause}`aiperf-hpc resume RUN` continues it"
    assert can_go_on(replayed(timed))


def test_a_run_is_incomplete_until_its_last_leg_has_ended() -> None:
    ended = len(until(LegEnded))
    answers = [verdict_on(TIMED[:end]).answer for end in range(1, ended, 9)]
    assert set(answers) == {Answer.INCOMPLETE}
    assert verdict_on(TIMED).answer is Answer.VALID


def test_what_resume_would_refuse_is_not_said_to_go_on() -> None:
    """Its time was over when it was killed, and there is nothing to test."""
    timed = then(FIRST_STEP, GroupLost(0, DEAD), GroupLost(1, DEAD))
    over = [*timed, (99.0, GroupLost(0, DEAD))]
    assert not can_go_on(replayed(over))
    found = shortfall(replayed(over), credited=False)
    assert found is not None
    assert found.text.endswith("if it was killed, it has no time left: start a new run")
    warned = shortfall(replayed([*over, (99.0, LegEnded("terminated", 99.0))]), credited=False)
    assert warned is not None
    assert warned.answer is Answer.NO_RESULT
    assert (
        warned.text == "no validation ended before the run was stopped; start a new run with more --minutes"
    )


def test_a_test_that_goes_on_has_not_failed() -> None:
    """Its journal grows, and there is a group that may do it."""
    replay = replayed(UNTESTED)
    testing = shortfall(replay, True, growing=True)
    assert testing is not None
    assert (testing.answer, testing.text) == (Answer.INCOMPLETE, "the best network is being tested")
    gone = replayed(then(UNTESTED, GroupLost(0, DEAD), GroupLost(1, DEAD)))
    failed = shortfall(gone, True, growing=True)
    assert failed is not None
    assert failed.answer is Answer.NO_RESULT


def test_after_an_error_nothing_is_tested() -> None:
    """As where its disk was full: its journal grew a moment ago, and its processes are gone."""
    timed, _ = NO_RESULT["an error"]
    found = shortfall(replayed(timed), True, growing=True)
    assert found is not None
    assert found.text == (
        "the run ended with an error: no space left; "
        "`aiperf-hpc resume RUN` continues it and tests the best network"
    )


def test_a_contradiction_makes_a_run_invalid_whatever_else_it_lacks() -> None:
    def other(event: Event) -> Event:
        wrong = isinstance(event, RankReady) and event.ready.rank == 1
        return replace(event, ready=replace(event.ready, code_hash="other")) if wrong else event  # type: ignore[attr-defined,call-arg]

    for timed, _ in [*NO_RESULT.values(), *INCOMPLETE.values()]:
        changed = [(t, other(event)) for t, event in timed]
        released = any(isinstance(event, Released) for _, event in timed)
        assert (verdict_on(changed).answer is Answer.INVALID) == released
    found = verdict_on([(t, other(event)) for t, event in lost(FIRST_STEP)])
    assert found.cause == "code: rank 1 on node1 ran different code"


def test_a_leg_that_was_refused_before_its_clock_contradicts_nothing() -> None:
    """A start on hosts whose clocks or images are wrong is refused; the next one is right."""
    killed = told(Scene(minutes=0.4, killed_at=20.0))
    second = max(at for at, (_, event) in enumerate(killed) if isinstance(event, LegBegan))

    def wrong(event: Event) -> Event:
        if not isinstance(event, RankReady):
            return event
        ready = replace(event.ready, code_hash="other", data={**event.ready.data, "sha256": "other"})
        return replace(event, clock_offset_seconds=9.0, ready=ready)

    refused = [(t, wrong(event)) for t, event in killed[second : second + 3]]
    again = [(t, replace(e, index=2) if isinstance(e, LegBegan) else e) for t, e in killed[second:]]
    timed = [*killed[:second], *refused, (refused[-1][0], _end("error: clocks")), *again]
    assert verdict_on(timed).failed(Kind.INTEGRITY) == []
    first = [(t, wrong(event)) for t, event in killed[:4]]
    once = [(t, replace(e, index=1) if isinstance(e, LegBegan) else e) for t, e in told(Scene(minutes=0.4))]
    assert verdict_on([*first, (first[-1][0], _end("error: data")), *once[1:]]).failed(Kind.INTEGRITY) == []


def test_a_tested_network_without_credited_work_is_no_result() -> None:
    """Every segment has a step that was not applied."""
    timed = [(t, within(e, loss=None) if isinstance(e, Stepped) else e) for t, e in TIMED]
    replay = replayed(timed)
    assert replay.tested is not None
    assert not credit(replay).segments
    verdict = judge(replay, None)
    assert verdict.shortfall is not None
    assert verdict.shortfall.text == "no segment was credited"


def unknown(timed: list[Timed]) -> set[str]:
    return {f.rule for f in verdict_on(timed).findings if f.outcome is Outcome.UNKNOWN}


NOT_AT_HAND = {"witnesses", "weights"}
OF_WORK = {
    "steps",
    "examples",
    "accuracy",
    "times",
    "speed",
    "ranked error",
    "ranked speed",
    "ranked segments",
}
OF_TRIALS = OF_WORK | {"lineage", "operations", "bounds", "search"}
OF_THE_CLOCK = OF_TRIALS | {
    "span",
    "ranks",
    "code",
    "clocks",
    "precision",
    "initialisation",
    "ranked span",
    "ranked trials",
    "ranked control",
}
OF_RANKS = OF_THE_CLOCK | {"data", "measurements", "ranked data"}


@pytest.mark.parametrize(
    ("timed", "rules"),
    [
        (TIMED, set()),
        (until(Stepped), OF_WORK - {"times"}),
        (then(NEVER, next(e for _, e in TIMED if isinstance(e, Released))), OF_TRIALS),
        (NEVER, OF_THE_CLOCK),
        (then(NEVER, _end("error: killed")), OF_THE_CLOCK | {"complete"}),
        (until(RankReady), OF_RANKS),
        (until(LegBegan), OF_RANKS),
    ],
    ids=["whole", "no step", "no trial", "no clock", "ended before the clock", "no rank", "no leg"],
)
def test_a_rule_that_looked_at_nothing_is_unknown(timed: list[Timed], rules: set[str]) -> None:
    assert unknown(timed) - NOT_AT_HAND - {"complete"} == rules - {"complete"}


def test_an_unknown_rule_of_eligibility_costs_the_class() -> None:
    verdict = verdict_on(TIMED)
    met = tuple(replace(finding, outcome=Outcome.PASSED) for finding in verdict.findings)
    assert Verdict(met).run_class is not None
    assert Verdict(met).run_class.value == "ranked"  # type: ignore[union-attr]
    doubtful = (*met[:-1], replace(met[-1], outcome=Outcome.UNKNOWN))
    assert Verdict(doubtful).run_class.value == "smoke"  # type: ignore[union-attr]
    assert [f.rule for f in Verdict(doubtful).unmet] == [met[-1].rule]
