"""When work was done: a master that stood still, news that was held up, work that does not fit the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from aiperf.journal.events import Began, Closed, Dispatched, Ended, Event, Released, Stalled, Stepped
from aiperf.journal.run_files import RunFiles
from aiperf.rules.rule import Kind, Outcome
from tests.aiperf.rules.forged import (
    Edit,
    changed,
    each,
    found,
    inserted,
    judged,
    one,
    places,
    retimed,
    together,
    with_config,
    without,
)
from tests.journals import RELEASE, Scene, Timed, part, told, within, write_witnesses
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


def test_a_stall_is_excused_by_the_work_of_all_groups_and_their_logs(
    folders: Iterator[Path], comes_to_what_was_read: ComesTo
) -> None:
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

    comes_to_what_was_read("stalls.txt", {**globals(), "span": span, "without": without, "Stalled": Stalled})


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


def test_news_may_be_held_up_but_nobody_does_two_things_at_once() -> None:
    timed = told(Scene(minutes=1.0, epochs=5000))  # the first trials last all of it
    assert found(of_one_trial(held_up)(timed), "times").outcome is Outcome.PASSED
    finding = found(of_one_trial(shifted)(timed), "times")
    assert finding.outcome is Outcome.FAILED
    assert finding.text == "group 0 worked on two things at once in leg 0"
