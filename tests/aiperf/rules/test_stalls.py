"""A master that stood still: what its groups told afterwards fills the time, or does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.config import with_overrides
from aiperf.files import RunFiles
from aiperf.journal.events import Began, Closed, Dispatched, Ended, Event, Opened, Released, Stalled, Stepped
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.rules.rule import Finding, Outcome
from aiperf.rules.verdict import judge
from tests.journals import RELEASE, Scene, Timed, told, within, write_run

FIRST = RELEASE + 20.0
"""When the master falls asleep."""
LONG = told(Scene(minutes=3.0, epochs=20000))
"""Both groups train their first trial all the time."""


def late(seconds: float, timed: list[Timed] = LONG) -> list[Timed]:
    """A master that hears so much later of all that is done in between, when it may be past the deadline."""
    woke = FIRST + seconds

    def heard(t: float, event: Event) -> Timed:
        if not FIRST < t < woke:
            return t, event
        if isinstance(event, Stepped | Closed | Began | Ended):
            return woke, replace(event, end=woke)
        return woke, event

    lines = [heard(t, event) for t, event in timed]
    first = next(place for place, (t, _) in enumerate(lines) if t >= woke)
    return [*lines[:first], (woke, Stalled()), *lines[first:]]


def asleep(seconds: float) -> list[Timed]:
    """Nothing goes on meanwhile; what follows is as it was, so much later, and the limit of time too."""
    lines: list[Timed] = []
    for t, event in LONG:
        if t > FIRST and not any(isinstance(line, Stalled) for _, line in lines):
            lines.append((t + seconds, Stalled()))
        if isinstance(event, Opened):
            event = replace(event, config=with_overrides(event.config, {"limits.minutes": 3 + seconds / 60}))
        lines.append(moved(t, event, seconds) if t > FIRST or isinstance(event, Released) else (t, event))
    return [(RELEASE, event) if isinstance(event, Released) else (t, event) for t, event in lines]


def moved(t: float, event: Event, seconds: float) -> Timed:
    """Later, with all that it says of times."""
    times = {name: getattr(event, name) + seconds for name in ("end", "deadline") if hasattr(event, name)}
    return t + seconds, replace(event, **times)


def findings(files: RunFiles, witnessed: bool = True) -> dict[str, Finding]:
    found = replay(read_journal(files.journal))
    assert found.faults == []
    return {finding.rule: finding for finding in judge(found, files if witnessed else None).findings}


@pytest.mark.parametrize("seconds", [31.0, 60.0, 150.0, 170.0])
def test_a_stall_through_which_the_groups_worked_is_no_contradiction(seconds: float, tmp_path: Path) -> None:
    found = findings(write_run(tmp_path / "run", late(seconds)))
    assert [
        each for each in found.values() if each.outcome is Outcome.FAILED and "ranked" not in each.rule
    ] == []
    assert found["span"].outcome is Outcome.PASSED
    assert "while the groups worked on" in found["span"].text
    assert "stood still" not in found["ranked span"].text


def test_without_the_ranks_logs_it_is_unknown_and_costs_the_class(tmp_path: Path) -> None:
    found = findings(write_run(tmp_path / "run", late(60.0)), witnessed=False)
    assert found["span"].outcome is Outcome.UNKNOWN
    assert "the master stalled for" in found["span"].text
    assert "the master stalled" in found["ranked span"].text


def test_a_stall_in_which_nobody_worked_excuses_no_lines(tmp_path: Path) -> None:
    """As where a file system is frozen under all of them, or the lines of a minute were removed."""
    found = findings(write_run(tmp_path / "run", asleep(60.0)))
    assert found["span"].outcome is Outcome.UNKNOWN
    assert "it is unknown whether group 0, 1 worked on" in found["ranked span"].text


def test_one_long_block_is_no_proof_of_work(tmp_path: Path) -> None:
    """As groups tell that stood still with the master, or whoever removed lines and made one block longer."""
    lines, waiting, group_of = list[Timed](), {0, 1}, dict[int, int]()
    for t, event in asleep(60.0):
        if isinstance(event, Dispatched):
            group_of[event.trial.number] = event.group
        if isinstance(event, Stepped) and t > FIRST + 60 and group_of[event.block.trial] in waiting:
            waiting.remove(group_of[event.block.trial])
            event = within(event, seconds=event.block.seconds + 60)
        lines.append((t, event))
    assert not waiting
    found = findings(write_run(tmp_path / "run", lines))
    assert "it is unknown whether group 0, 1 worked on" in found["ranked span"].text


def test_a_silence_without_the_line_is_a_contradiction(tmp_path: Path) -> None:
    lines = [(t, event) for t, event in late(60.0) if not isinstance(event, Stalled)]
    found = findings(write_run(tmp_path / "run", lines))
    assert found["span"].outcome is Outcome.FAILED
    assert "lines are missing" in found["span"].text


def test_before_the_clock_nothing_is_counted(tmp_path: Path) -> None:
    at = next(place for place, (_, event) in enumerate(LONG) if isinstance(event, Released))
    shifted = [moved(t, e, 100.0) if place >= at else (t, e) for place, (t, e) in enumerate(LONG)]
    found = findings(write_run(tmp_path / "run", [*shifted[:at], (shifted[at][0], Stalled()), *shifted[at:]]))
    assert found["span"].outcome is Outcome.PASSED
