"""Legs without work, put before or behind a good journal, from which nothing is read; and legs that never
were: a resumed run told as one leg, a deadline moved.

What a careful forger can still do is tested too, and is in the table of docs/score.md.
"""

from __future__ import annotations

import pytest

from aiperf.journal.events import (
    CeilingMeasured,
    Closed,
    ControlMeasured,
    Ended,
    Event,
    GroupLost,
    LegBegan,
    LegEnded,
    RankReady,
    Released,
    Stepped,
)
from aiperf.wire.reports import Finished
from aiperf.wire.trial import State
from tests.aiperf.rules.forged import (
    TIMED,
    each,
    evidence,
    failed,
    found,
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
from tests.journals import RELEASE, Scene, Timed, replayed, told, within

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


def test_a_resumed_run_told_as_one_leg_has_ranks_of_another_time_of_day() -> None:
    """As where an honest host's clock was set: the class is lost, and the run stays valid."""
    assert failed(merged(gap=8.0, careful_clock=False)) == {}
    verdict = judged(merged(gap=8.0, careful_clock=False))
    (doubt,) = [finding for finding in verdict.unmet if finding.rule == "clocks"]
    assert "rank 1 was ready 35" in doubt.text
    assert "later by the time of day than by leg 0" in doubt.text


def test_nobody_is_ready_sooner_than_it_takes() -> None:
    text = "rank 1 was ready 0.5 s after its start, but its initialisation took 1.5 s"
    assert failed(merged(gap=0.5, careful_clock=True)) == {"ranks": text}


def test_whoever_moves_the_time_of_day_too_is_not_seen() -> None:
    """It has cost him the time that groups need to start again. See the table of docs/score.md."""
    assert failed(merged(gap=8.0, careful_clock=True)) == {}


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


def test_a_killed_run_told_as_one_that_reached_its_deadline_does_not_work_up_to_it() -> None:
    text = failed(cut_to_a_deadline(58.0))["examples"]
    assert "trial 0 was closed at " in text
    assert ", too early in leg 0" in text
