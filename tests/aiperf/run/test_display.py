"""What stands in a log while a run goes on, and on a terminal."""

from __future__ import annotations

import io
import re
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.run.display import PLAIN_GROUPS_SHOWN, Display
from aiperf.score.lineage import recount
from aiperf.score.score import score
from tests.journals import RELEASE, Scene, told


def shown(scene: Scene, terminal: bool) -> None:
    """A run as the master tells it, looked at four times a second in between."""
    replay, at = Replay(), 0.0
    with Display(RunFiles(Path("runs/one")), terminal) as display:
        for t, event in told(scene):
            while replay.legs and at < t:
                display.show(replay, at)
                at += 0.25
            replay.add(t, event)
        display.show(replay, at + 10)


def test_a_log_says_what_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    shown(Scene(groups=5), terminal=False)
    lines = capsys.readouterr().out.splitlines()
    said = [line.partition(" · ")[2] for line in lines]
    assert lines[0] == "run directory: runs/one"
    assert lines[1] == "0:00 before the span · starting the workers, loading the data: 0 of 5 ready"
    assert re.fullmatch(r"0:\d\d after the span · testing the best network", lines[-1])
    assert all(one != other for one, other in pairwise(said)), "nothing twice"
    going = [line for line in said if " so far · " in line]
    assert going
    for line in going:
        assert "OPS so far" in line
        assert line.count(" epoch ") <= PLAIN_GROUPS_SHOWN
    assert going[len(going) // 2].endswith("and 3 more")


def test_a_log_of_an_hour_has_a_line_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    shown(Scene(groups=1, minutes=10.0), terminal=False)
    going = [line for line in capsys.readouterr().out.splitlines() if " of 10:00 · " in line]
    seconds = [60 * int(line[:-3]) + int(line[-2:]) for line in (line.split(" of ")[0] for line in going)]
    assert all(later - earlier >= 9 for earlier, later in pairwise(seconds))
    assert 40 <= len(going) <= 61


def test_a_terminal_shows_every_group_and_nothing_on_top_of_another() -> None:
    replay, display = Replay(), Display(RunFiles(Path("runs/one")), terminal=True)
    for t, event in told(Scene(groups=3)):
        replay.add(t, event)
        if t > 30:
            break
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(display._panel(replay, t))
    head, span, facts, *groups = console.export_text().splitlines()
    assert head == "aiperf-hpc · simulated · NVIDIA H200 · runs/one"
    assert re.fullmatch(r"\s+━[━╸╺ ]+  0:\d\d of 0:30\s*", span)
    assert re.fullmatch(
        r"  [\d.]+ GOPS so far · best ended trial \d+: error [\d.]+ % · \d+ complete, \d+ failed",
        facts,
    )
    operations = score(replay, recount(replay).counts).ops_per_second * replay.span_seconds
    assert float(facts.split()[0]) == pytest.approx(operations / (replay.leg.last - RELEASE) / 1e9, rel=2e-3)
    assert [line.split()[:2] for line in groups] == [["group", "0"], ["group", "1"], ["group", "2"]]
    assert all(re.search(r"trial \d+ \(.+\) epoch \d+/20", line) for line in groups)
