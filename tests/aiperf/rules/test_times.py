"""When work was done: a master that stood still, news that was held up, work that does not fit the time, legs
that never were; and how long a trial is. What a careful forger can still do is in docs/score.md."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aiperf.journal.attempts import Attempt, Leg
from aiperf.journal.columns import Validations
from aiperf.journal.events import (
    Began,
    CeilingMeasured,
    Closed,
    ControlMeasured,
    Dispatched,
    Ended,
    Event,
    GroupLost,
    LegBegan,
    LegEnded,
    Opened,
    RankReady,
    Released,
    Stalled,
    Stepped,
)
from aiperf.journal.run_files import RunFiles
from aiperf.rules.rule import Evidence, Kind, Outcome
from aiperf.rules.trial_length import _kept, _since_best, examples
from aiperf.tasks.language.tally import UNIT, Predicted
from aiperf.wire.reports import NOTHING_KEPT, Finished
from aiperf.wire.trial import Segment, State
from tests.aiperf.rules.forged import (
    TIMED,
    Edit,
    changed,
    each,
    evidence,
    failed,
    finds,
    found,
    inserted,
    judged,
    one,
    places,
    retimed,
    together,
    with_config,
    with_leg_before,
    with_leg_for_the_test,
    without,
)
from tests.journals import RELEASE, Scene, Simulation, Timed, part, replayed, told, within, write_witnesses
from tests.tables import ComesTo

FIRST = RELEASE + 20.0
"""When the master falls asleep."""
LONG = told(Scene(minutes=3.0, epochs=20000))
"""Both groups train their first trial all the time."""


def late(seconds: float) -> list[Timed]:
    """A master that hears so much later of all that is done in between, when it may be past the deadline."""
    woke = FIRST + seconds

    def heard(t: float, event: Event) -> Timed:
        if not FIRST < t < woke:
            return t, event
        kinds = Stepped | Closed | Began | Ended
        return woke, replace(event, end=woke) if isinstance(event, kinds) else event

    lines = [heard(t, event) for t, event in LONG]
    return inserted(lines, next(place for place, (t, _) in enumerate(lines) if t >= woke), Stalled())


def asleep(seconds: float) -> list[Timed]:
    """Nothing goes on meanwhile; what follows is as it was, so much later, and the limit of time too."""
    place = next(place for place, (t, _) in enumerate(LONG) if t > FIRST)
    before = together(
        with_config(**{"limits.minutes": 3 + seconds / 60}),
        each(Released, lambda event: replace(event, deadline=event.deadline + seconds)),
    )(LONG[:place])
    after = [moved(t, event, seconds) for t, event in LONG[place:]]
    return [*before, *inserted(after, 0, Stalled())]


def moved(t: float, event: Event, seconds: float) -> Timed:
    """Later, with all that it says of times."""
    return t + seconds, retimed(event, lambda t: t + seconds)


def with_one_long_block(lines: list[Timed]) -> list[Timed]:
    """As groups tell that stood still with the master, or whoever removed lines and made one block longer."""
    for trial in (0, 2):  # the first of each group
        place = next(at for at in places(lines, Stepped, trial) if lines[at][0] > FIRST + 60)
        event = lines[place][1]
        lines = changed(lines, place, within(event, seconds=part(event).seconds + 60))
    return lines


def before_the_clock() -> list[Timed]:
    (at,) = places(LONG, Released)
    shifted = [*LONG[:at], *(moved(t, event, 100.0) for t, event in LONG[at:])]
    return inserted(shifted, at, Stalled())


def of_one_trial(change: Callable[[float, Event], Timed]) -> Edit:
    """Every block and validation of the first trial of a group, changed."""

    def edit(timed: list[Timed]) -> list[Timed]:
        number = one(Dispatched, timed).trial.number
        mine = {*places(timed, Closed, number), *places(timed, Stepped, number)}
        lines = [change(t, event) if place in mine else (t, event) for place, (t, event) in enumerate(timed)]
        return sorted(lines, key=lambda line: line[0])

    return edit


def held_up(t: float, event: Event) -> Timed:
    """A cable is pulled for 20 s; then all that was done meanwhile is reported at once."""
    return moved(t, event, max(0.0, FIRST + 20.0 - t) if t > FIRST else 0.0)


def shifted(t: float, event: Event) -> Timed:
    """As where blocks are made longer in the half of a run in which nobody has spared seconds."""
    if isinstance(event, Stepped):
        return t, within(event, seconds=event.block.seconds * (0.5 if t < RELEASE + 30 else 1.45))
    return t, event


# Legs without work, a resumed run told as one leg, a deadline moved


READY, CONTROL, CEILING = one(RankReady), one(ControlMeasured), one(CeilingMeasured)
FAST = within(CONTROL, examples_per_second=3.2e7, seconds=5120 / 3.2e7)
FALSE_DATA = {**READY.ready.data, "training_examples": 3, "validation_examples": 40_000}
FALSE_READY = within(READY, data=FALSE_DATA, device="NVIDIA GB200")
UNUSED: dict[str, tuple[Event, ...]] = {
    "control": (READY, FAST),
    "manifest": (FALSE_READY,),
    "ceiling": (READY, CEILING),
}


def figures(timed: list[Timed]) -> tuple[object, ...]:
    """What is said of a run besides its work: control, devices, data, peak and the old way of counting."""
    seen = evidence(timed)
    run, result = seen.replay, seen.score
    return (
        result.control,
        sorted(run.devices.items()),
        dict(run.manifest),
        result.peak_ops_per_second,
        result.aiperf1_ops_per_second,
    )


@pytest.mark.parametrize("lines", UNUSED.values(), ids=UNUSED)
def test_nothing_is_read_from_a_leg_that_never_started(lines: tuple[Event, ...]) -> None:
    assert figures(with_leg_before(*lines)(TIMED)) == figures(TIMED)


def test_nothing_is_read_from_a_leg_without_a_span_in_which_the_test_is_made() -> None:
    """As after an interrupt near the deadline, which is honest."""
    tested = with_leg_for_the_test()(TIMED)
    assert failed(tested) == {}
    assert figures(with_leg_for_the_test(FAST)(TIMED)) == figures(tested) == figures(TIMED)


def test_the_test_is_made_in_a_leg_whose_clock_started() -> None:
    forged = with_leg_for_the_test(FALSE_READY, released=False)(TIMED)
    assert figures(forged) == figures(TIMED)
    assert "Tested comes in a leg whose clock never started" in found(forged, "order").text


# Of one group: what several had in flight was given out again in another order than after losses of groups.
TWO_LEGS = told(Scene(minutes=0.4, killed_at=20.0, groups=1))


def merged(gap: float, careful_clock: bool) -> list[Timed]:
    """Two legs told as one, in which all groups were lost for `gap` seconds and started again."""
    place = places(TWO_LEGS, LegBegan)[1]
    first, second = (
        TWO_LEGS[:place],
        without(TWO_LEGS[place + 1 :], CeilingMeasured, ControlMeasured, Released),
    )
    before, after = replayed(TWO_LEGS).legs
    assert before.deadline is not None
    assert after.deadline is not None
    died, shift = before.last, before.deadline - after.deadline
    later: list[Timed] = [(died, GroupLost(0, "was silent for 61 s"))]
    for t, event in second:
        if isinstance(event, RankReady):
            wall = event.ready.wall_seconds - 3600 + died + gap - t
            later.append((died + gap, within(event, wall_seconds=wall) if careful_clock else event))
        else:
            later.append((t + shift, retimed(event, lambda t: t + shift)))
    return [*first, *later]


def cut_to_a_deadline(seconds: float) -> list[Timed]:
    """A run that was killed after this many seconds of its span, told as one that was to last so long. What
    was in flight was stopped, it says, and is left where it last validated."""
    long = told(Scene(minutes=2.0, epochs=5000, changes=(("training.validate_every_examples", 60_000),)))
    deadline = RELEASE + seconds
    lines = [(t, event) for t, event in long if t <= deadline]
    validated = {event.segment.trial: event.segment.index for _, event in lines if isinstance(event, Closed)}
    kept = [
        (t, event)
        for t, event in lines
        if not isinstance(event, Stepped) or event.block.segment <= validated.get(event.block.trial, -1)
    ]
    for attempt in replayed(lines).running.values():
        stopped = Finished(attempt.trial.number, attempt.number, State.STOPPED, "the run ended")
        kept.append((deadline, Ended(stopped, deadline)))
    edit = together(
        with_config(**{"limits.minutes": seconds / 60}), each(Released, lambda _: Released(deadline))
    )
    return edit([*kept, (deadline, LegEnded("deadline", deadline))])


def test_a_stall_is_excused_by_the_work_of_all_groups_and_their_logs_and_other_times_must_be_possible(
    folders: Iterator[Path], comes_to_what_was_read: ComesTo
) -> None:
    """News may be held up, but nobody does two things at once. A resumed run told as one leg has ranks of
    another time of day, as where an honest host's clock was set: the class is lost. Whoever moves the time of
    day too is not seen, see the table of docs/score.md; it cost him the time that groups need to start."""

    def span(lines: list[Timed], logged: bool = True) -> tuple[str, str]:
        files = RunFiles(next(folders)) if logged else None
        if files:
            write_witnesses(files, lines)
        verdict = judged(lines, files)
        seen, ranked = found(verdict, "span"), found(verdict, "ranked span")
        unknown = seen.outcome is Outcome.UNKNOWN
        assert ("the master stalled" in ranked.text) == unknown, "it costs the class"
        assert "the groups worked on" not in seen.text or not verdict.failed(Kind.INTEGRITY)
        return seen.outcome.name, seen.text

    comes_to_what_was_read(
        "stalls.txt", {**globals(), "span": span, "finds": finds, "without": without, "Stalled": Stalled}
    )


# How early a trial may be closed, and which of its validations is the best, also where errors end at 1


STEP_SECONDS, VALIDATE_SECONDS = 63.66, 169.4


class Slow(Simulation):
    """A step takes a minute and a validation three, so that what is allowed for late messages is little."""

    def __init__(self, closing_share: float, minutes: float, rules: int) -> None:
        super().__init__(Scene(groups=1, minutes=minutes, epochs=2000))
        self.closing_share, self.rules = closing_share, rules

    def opened(self) -> Opened:
        return replace(super().opened(), rules=self.rules)

    def speed(self, group: int) -> float:
        return 4e6


def too_early(closing_share: float, minutes: float, rules: int) -> list[str]:
    run = replayed(Slow(closing_share, minutes, rules).run())
    last = run.attempts[0].validations[-1]
    assert last.segment.validate_seconds == pytest.approx(VALIDATE_SECONDS, rel=1e-3)
    assert last.segment.train_seconds / last.segment.steps == pytest.approx(STEP_SECONDS, rel=1e-3)
    seen = examples(Evidence(run, None, None, None))  # type: ignore[arg-type]
    return [text for text in seen.contradictions if "too early" in text]


def attempt_of(*bits: float, late: int = 0) -> Attempt:
    """An attempt on one window of 16 bytes, with a validation for each of `bits`; the last `late` are too
    late."""
    closed = Validations()
    for index, wrong in enumerate(bits):
        tally = Predicted(1, round(wrong * UNIT) * 16, 16)
        event = Closed(Segment(0, 1, index, 1, 1, 1.0, tally, 0.1), 1.0)
        closed.append(0, 1.0, event.row, in_time=index < len(bits) - late)
    job = cast(Any, SimpleNamespace(attempt=1, trial=SimpleNamespace(number=7)))
    nobody = nothing = cast(Any, None)
    places = array("i", range(len(bits)))
    return Attempt(0, dispatched=job, leg=nobody, attempt_rows=nothing, table=closed, places=places)


def best(*bits: float) -> tuple[int | None, list[int]]:
    """The index of the best validation, and how long each one is behind the best until then."""
    attempt = attempt_of(*bits)
    assert attempt.unbounded == min(bits) / 8
    assert attempt.error == min(1.0, attempt.unbounded)
    return chosen_of(attempt), since(attempt)


def since(attempt: Attempt, kept: int | None = None) -> list[int]:
    """As early stopping counts, by what the group said that it kept."""
    if kept is not None:
        attempt.told_state, attempt.kept = State.COMPLETE, kept
    return list(_since_best(attempt.rows, attempt.kept))


def chosen(late: int, kept: int) -> int | None:
    """A group may have taken a validation for too late that is in time in the journal, or the other way
    round: then the lowest error there is not that of its network."""
    attempt = attempt_of(4, 3, 2, late=late)
    attempt.told_state, attempt.kept = State.STOPPED, kept
    assert attempt.chosen_from == (attempt.best_validation is not None)
    return chosen_of(attempt)


def chosen_of(attempt: Attempt) -> int | None:
    best = attempt.best_validation
    return None if best is None else best.segment.index


def kept(kept: int, *ends: float) -> list[str]:
    """The deadline is at 100 s, and its neighbourhood 10 s and a thousandth."""
    attempt = attempt_of(4, 3, 2)
    attempt.table.rows["end"][:] = ends
    attempt.leg = Leg(0, cast(Any, None), deadline=100.0)
    attempt.told_state, attempt.kept = State.STOPPED, kept
    return list(_kept(attempt, attempt.rows))


def test_when_a_trial_may_be_closed_and_which_of_its_validations_is_the_best(
    comes_to_what_was_read: ComesTo,
) -> None:
    """Not earlier than its group reserves. The smallest error is the best above eight bits, as a trainer
    has it (tests/aiperf/training/test_text.py); but a group says which network it kept. Near the deadline
    alone the last validation may be left out or late."""
    comes_to_what_was_read("trial_length.txt", {**globals(), "NOTHING_KEPT": NOTHING_KEPT})
