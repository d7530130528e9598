"""What stands in a log while a run goes on, and on a terminal."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.run.display import Display
from aiperf.score.lineage import recount
from aiperf.score.score import score
from tests.journals import RELEASE, Scene, told

AsItWasRead = Callable[[str, str], None]


def shown(scene: Scene) -> None:
    """A run as the master tells it, looked at four times a second in between."""
    replay, at = Replay(), 0.0
    with Display(RunFiles(Path("runs/one")), terminal=False) as display:
        for t, event in told(scene):
            while replay.legs and at < t:
                display.show(replay, at)
                at += 0.25
            replay.add(t, event)
        display.show(replay, at + 10)


def test_a_log_says_what_is_new(capsys: pytest.CaptureFixture[str], as_it_was_read: AsItWasRead) -> None:
    shown(Scene(groups=5))
    as_it_was_read(capsys.readouterr().out, "display_log.txt")


def test_a_log_of_an_hour_has_a_line_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    shown(Scene(groups=1, minutes=10.0))
    going = [line for line in capsys.readouterr().out.splitlines() if " of 10:00 · " in line]
    seconds = [60 * int(line[:-3]) + int(line[-2:]) for line in (line.split(" of ")[0] for line in going)]
    assert all(later - earlier >= 9 for earlier, later in pairwise(seconds))
    assert 40 <= len(going) <= 61


def test_a_terminal_shows_every_group_and_nothing_on_top_of_another(as_it_was_read: AsItWasRead) -> None:
    replay, display = Replay(), Display(RunFiles(Path("runs/one")), terminal=True)
    for t, event in told(Scene(groups=3)):
        replay.add(t, event)
        if t > 30:
            break
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(display._panel(replay, t))
    panel = "".join(f"{line.rstrip()}\n" for line in console.export_text().splitlines())
    as_it_was_read(panel, "display_terminal.txt")
    operations = score(replay, recount(replay).counts).ops_per_second * replay.span_seconds
    assert operations / (replay.leg.last - RELEASE) == pytest.approx(57.73e9, rel=2e-3)
