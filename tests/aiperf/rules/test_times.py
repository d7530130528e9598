"""When work was done: a master that stood still, news that was held up, work that does not fit the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.files import RunFiles
from aiperf.journal.events import Began, Closed, Dispatched, Ended, Event, Released, Stalled, Stepped
from aiperf.rules.rule import Finding, Kind, Outcome
from tests.aiperf.rules.forged import (
    Edit,
    each,
    found,
    inserted,
    judged,
    one,
    places,
    together,
    with_config,
    without,
)
from tests.journals import RELEASE, Scene, Timed, told, within, write_witnesses

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
    times = {name: getattr(event, name) + seconds for name in ("end", "deadline") if hasattr(event, name)}
    return t + seconds, replace(event, **times)


def findings(lines: list[Timed], directory: Path | None = None) -> dict[str, Finding]:
    """With the logs of the ranks in the directory, if one is given."""
    files = RunFiles(directory) if directory else None
    if files:
        write_witnesses(files, lines)
    return {finding.rule: finding for finding in judged(lines, files).findings}


@pytest.mark.parametrize("seconds", [31.0, 60.0, 150.0, 170.0])
def test_a_stall_through_which_the_groups_worked_is_no_contradiction(seconds: float, tmp_path: Path) -> None:
    answers = findings(late(seconds), tmp_path)
    wrong = [f for f in answers.values() if f.outcome is Outcome.FAILED and f.kind is Kind.INTEGRITY]
    assert wrong == []
    assert answers["span"].outcome is Outcome.PASSED
    assert "while the groups worked on" in answers["span"].text
    assert "stood still" not in answers["ranked span"].text


def test_without_the_ranks_logs_it_is_unknown_and_costs_the_class() -> None:
    answers = findings(late(60.0))
    assert answers["span"].outcome is Outcome.UNKNOWN
    assert "the master stalled for" in answers["span"].text
    assert "the master stalled" in answers["ranked span"].text


def test_a_stall_in_which_nobody_worked_excuses_no_lines(tmp_path: Path) -> None:
    """As where a file system is frozen under all of them, or the lines of a minute were removed."""
    answers = findings(asleep(60.0), tmp_path)
    assert answers["span"].outcome is Outcome.UNKNOWN
    assert "it is unknown whether group 0, 1 worked on" in answers["ranked span"].text


def test_one_long_block_is_no_proof_of_work(tmp_path: Path) -> None:
    """As groups tell that stood still with the master, or whoever removed lines and made one block longer."""
    lines = asleep(60.0)
    for trial in (0, 2):  # the first of each group
        place = next(at for at in places(lines, Stepped, trial) if lines[at][0] > FIRST + 60)
        t, event = lines[place]
        assert isinstance(event, Stepped)
        lines[place] = t, within(event, seconds=event.block.seconds + 60)
    answers = findings(lines, tmp_path)
    assert "it is unknown whether group 0, 1 worked on" in answers["ranked span"].text


def test_a_silence_without_the_line_is_a_contradiction(tmp_path: Path) -> None:
    span = findings(without(late(60.0), Stalled), tmp_path)["span"]
    assert span.outcome is Outcome.FAILED
    assert "lines are missing" in span.text


def test_before_the_clock_nothing_is_counted(tmp_path: Path) -> None:
    (at,) = places(LONG, Released)
    shifted = [*LONG[:at], *(moved(t, event, 100.0) for t, event in LONG[at:])]
    assert findings(inserted(shifted, at, Stalled()), tmp_path)["span"].outcome is Outcome.PASSED


def of_one_trial(change: Callable[[float, Event], Timed]) -> Edit:
    """Every block and validation of the first trial of a group, changed."""

    def edit(timed: list[Timed]) -> list[Timed]:
        number = one(Dispatched, timed).trial.number
        mine = {*places(timed, Closed, number), *places(timed, Stepped, number)}
        lines = [change(t, event) if place in mine else (t, event) for place, (t, event) in enumerate(timed)]
        return sorted(lines, key=lambda line: line[0])

    return edit


def held_up(t: float, event: Event) -> Timed:
    """A cable is pulled for 20 s; then all that was done meanwhile is told at once."""
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
