"""What a run is, as its lines tell it; what a long one is held in, its axis of time, and its mark."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from aiperf.errors import AiperfError
from aiperf.journal import events
from aiperf.journal.attempts import AFTER_LAST_LINE_SECONDS, Leg
from aiperf.journal.axis import SpanAxis
from aiperf.journal.columns import Digests
from aiperf.journal.events import Beat, Event, GroupLost, LegBegan, LegEnded, Origin
from aiperf.journal.mark import mark_of, marked, refuse_marked
from aiperf.journal.replay import Replay
from aiperf.tasks.images.tally import Classified
from aiperf.wire import messages, trial
from aiperf.wire.reports import NOTHING_KEPT
from aiperf.wire.trial import State
from tests.aiperf.rules.forged import each, inserted, one, places, said, together
from tests.journals import RELEASE, Scene, Timed, keeping, replayed, told, within
from tests.tables import ComesTo


def up_to(kind: type[Event], timed: list[Timed]) -> list[Timed]:
    """With the first line of that kind."""
    return timed[: places(timed, kind)[0] + 1]


@pytest.fixture(scope="module")
def plain() -> list[Timed]:
    return told(Scene(minutes=0.15))


def test_an_attempt_knows_its_steps_its_curve_and_its_lowest_error(plain: list[Timed]) -> None:
    run = replayed(plain)
    attempt, worked = run.trials[0].attempts[-1], run.worked()
    closed = [e.segment for _, e in plain if isinstance(e, events.Closed) and e.segment.trial == 0]
    assert attempt.state is State.COMPLETE
    assert attempt.steps == sum(segment.steps for segment in closed)
    assert worked.examples[attempt.index] == attempt.steps * 50
    assert worked.seconds[attempt.index] == pytest.approx(sum(segment.train_seconds for segment in closed))
    assert attempt.curve == [(2000 * (i + 1), segment.error) for i, segment in enumerate(closed)]
    assert attempt.error == min(segment.error for segment in closed)


def test_of_equal_errors_the_first_to_end_is_the_best() -> None:
    timed = told(Scene(minutes=0, max_trials=6))
    replay = replayed(keeping(said(events.Closed, tally=Classified(400, 200))(timed)))
    assert replay.best.number == replay.arrivals[0].trial.number


@pytest.mark.parametrize("state", [State.FAILED, State.LOST])
def test_a_trial_that_ended_by_a_failure_is_not_the_best(state: State, plain: list[Timed]) -> None:
    """Whatever it had validated before: its network is not kept."""
    best = replayed(plain).best.number
    assert replayed(said(events.Ended, best, state=state)(plain)).best.number != best


def test_a_trial_goes_from_waiting_to_running_to_its_end(plain: list[Timed]) -> None:
    assert replayed(up_to(events.Dispatched, plain)).trials[0].state is State.WAITING
    running = replayed(up_to(events.Began, plain))
    assert [attempt.trial.number for attempt in running.running.values()] == [0]
    assert running.trials[0].state is State.RUNNING
    assert replayed(up_to(events.Ended, plain)).arrivals[0].state is State.COMPLETE


def test_a_validation_after_the_deadline_is_on_no_curve(plain: list[Timed]) -> None:
    late = each(events.Closed, lambda event: replace(event, end=1e6))
    replay = replayed(together(late, said(events.Ended, kept=NOTHING_KEPT))(plain))
    assert all(attempt.curve == [] for attempt in replay.attempts)
    assert replay.best is None
    assert not any(v.in_time for attempt in replay.attempts for v in attempt.validations)


def test_a_killed_leg_ends_one_heartbeat_after_its_last_line_but_not_past_the_deadline(
    plain: list[Timed],
) -> None:
    killed = [*up_to(events.Closed, plain), (18.0, Beat())]
    without = each(events.Released, lambda event: replace(event, deadline=None))(killed)
    assert replayed(without).span_seconds == 18.0 + AFTER_LAST_LINE_SECONDS - RELEASE
    assert replayed(without).seconds_so_far == 18.0 - RELEASE, "it may go on"
    assert replayed(killed).span_seconds == 9.0
    assert replayed(up_to(events.ControlMeasured, plain)).span_seconds == 0.0, "never released"


def test_spans_of_legs_add_up_and_what_was_in_flight_is_lost() -> None:
    replay = replayed(told(Scene(minutes=0.5, killed_at=20.0)))
    assert replay.faults == []
    first, second = replay.legs
    assert first.ended is None
    assert first.span_seconds == first.last + AFTER_LAST_LINE_SECONDS - RELEASE
    assert second.span_seconds == pytest.approx(30.0 - first.span_seconds)
    assert replay.span_seconds == pytest.approx(30.0)
    again = [story for story in replay.trials.values() if len(story.attempts) > 1]
    assert len(again) == 4  # of two groups, one running and one waiting each
    assert {(story.attempts[0].state, *(a.leg.index for a in story.attempts)) for story in again} == {
        (State.LOST, 0, 1)
    }


def test_a_lost_group_loses_its_trials_and_may_come_back() -> None:
    timed = told(Scene(minutes=0.3, lost=((1, 20.0),)))
    lost = replayed(up_to(GroupLost, timed))
    assert [event.group for event in lost.leg.losses] == [1]
    assert {a.state for a in lost.attempts if a.group == 1 and a.ended is None} == {State.LOST}
    assert any(a.state is State.RUNNING for a in lost.attempts if a.group == 0)
    whole = replayed(timed)
    assert whole.faults == []
    assert len(whole.ranks) == 3


def test_a_wrong_segment_a_wrong_group_a_wrong_state_are_faults(
    plain: list[Timed], comes_to_what_was_read: ComesTo
) -> None:
    begun, over = up_to(events.Began, plain), up_to(events.LegEnded, plain)
    t, began = begun[-1]

    def after(timed: list[Timed], *more: Event) -> list[str]:
        return [fault.text for fault in replayed([*timed, *((timed[-1][0], event) for event in more)]).faults]

    assert after(over, Beat(), GroupLost(0, "killed"), plain[-1][1]) == [], "all that may follow a leg's end"

    def twice(kind: type[Event]) -> list[str]:
        """What can happen once, and changes nothing the second time."""
        (place, *_) = places(plain, kind)
        before, again = replayed(plain), replayed(inserted(plain, place, plain[place][1]))
        unchanged = [(len(run.attempts), len(run.arrivals), run.span_seconds) for run in (before, again)]
        assert unchanged[0] == unchanged[1]
        return [fault.text for fault in again.faults]

    def missing(kind: type[Event]) -> str:
        """The first fault without what is the cause of other lines."""
        (place, *_) = places(plain, kind)
        return replayed(plain[:place] + plain[place + 1 :]).faults[0].text

    (text,) = after(begun[:-1], events.Began(replace(began.started, threads=(1, 1, 1)), began.end))
    assert text.endswith("threads of 3 ranks, not of 1")
    names = {"fault": partial(after, begun), "ended": partial(after, over), "t": t, "Classified": Classified}
    names |= {"twice": twice, "missing": missing}
    comes_to_what_was_read("faults.txt", {**vars(events), **vars(messages), **vars(trial), **names})


def test_a_rank_that_came_again_is_one_device_by_its_last_word_and_its_first() -> None:
    ready = one(events.RankReady, told(Scene(minutes=0.05)))
    run = Replay()
    run.add(0.0, events.LegBegan(0, "", (), ((1,),)))
    for pid in (1, 2):
        run.add(1.0, within(ready, pid=pid))
        run.add(2.0, GroupLost(0, "it died"))
    assert [device.pid for device in run.leg.devices.values()] == [2]
    assert [device.pid for device in run.leg.first_devices.values()] == [1]
    assert run.devices == run.leg.devices


# Columns


DIGEST = "0f" * 32
TEXTS = ["", DIGEST, DIGEST.upper(), "0" * 64, " " * 64, f"{DIGEST[:-2]} f", "é" * 64, "x", f"{DIGEST} "]
"""A digest, and what is nearly one: a journal may have any text in its place."""


def test_texts_in_the_place_of_digests_are_given_back_as_they_are() -> None:
    held = Digests()
    for text in TEXTS:
        held.append(text)
    assert list(held) == TEXTS
    assert held.known.tolist() == [text != "" for text in TEXTS]
    with pytest.raises(IndexError):
        held[len(TEXTS)]


def test_a_text_can_be_written_over_by_any_other() -> None:
    held = Digests()
    held.append("")
    for text in (*TEXTS, *TEXTS[::-1]):
        held[0] = text
        assert list(held) == [text]
        assert held.known.tolist() == [text != ""]


def test_digests_take_a_third_of_the_memory_of_texts() -> None:
    """And nothing else is held for them."""
    held = Digests()
    for _ in range(1000):
        held.append(DIGEST)
    assert (len(held._packed), held._others) == (32_000, {})


# The axis of time


def leg(index: int, released: float, end: float) -> Leg:
    began = LegBegan(index, "2026-01-01T00:00:00+00:00", (), ((1,),))
    return Leg(index, began, released=released, ended=LegEnded("deadline", end))


@pytest.mark.parametrize("legs", [0, 1, 2, 3])
def test_a_column_of_times_is_converted_as_each_of_them_is(legs: int) -> None:
    """Legs of 5, 7 and 9 s follow each other; a run that has just begun has none. Times before and after a
    leg are clipped to its part."""
    found = [leg(index, 10.0 * index, 10.0 * index + 5 + 2 * index) for index in range(legs)]
    axis = SpanAxis(found)
    places, times = np.repeat(np.arange(legs), 4), np.tile([-3.0, 11.0, 22.5, 99.0], legs)
    wanted = [axis.at(found[place], time) for place, time in zip(places, times)]
    assert axis.of(places, times).tolist() == wanted
    assert wanted[:1] + wanted[-1:] == ([0.0, [5.0, 12.0, 21.0][legs - 1]] if legs else [])


# The words that mark what was not measured


UNMEASURED = [origin for origin in Origin if origin is not Origin.MEASURED]


@pytest.mark.parametrize("origin", UNMEASURED)
def test_every_origin_but_one_has_a_mark(origin: Origin) -> None:
    mark = mark_of(origin)
    assert mark is not None
    assert marked("sustained OPS", mark) == f"sustained OPS, {origin.value}"
    assert mark.line.startswith(f"{origin.value.upper()}: no network was trained")
    with pytest.raises(AiperfError, match=f"^x cannot be sold: the run is {origin.value}: no network"):
        refuse_marked(origin, Path("x"), "be sold")


def test_what_was_measured_has_none() -> None:
    assert mark_of(Origin.MEASURED) is None
    assert marked("sustained OPS", None) == "sustained OPS"
    refuse_marked(Origin.MEASURED, Path("x"), "be sold")
