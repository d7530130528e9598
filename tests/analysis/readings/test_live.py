"""A run followed as its journal grows: nothing is read twice, nothing is missed, nothing is disturbed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from aiperf.journal.run_files import RunFiles
from analysis.exports.watch import sparkline, watch_text
from analysis.pages.live_page import live_html
from analysis.readings.hosts import GroupNow
from analysis.readings.judgement import Judged, examine
from analysis.readings.live import Follower, Snapshot
from tests.journals import CIFAR, Machine, Scene, resized, told, write_run


def following(files: RunFiles) -> Follower:
    follower = Follower(files)
    assert follower.update()
    return follower


def test_what_is_appended_is_read_once(run: RunFiles, judged: Judged, tmp_path: Path) -> None:
    """A journal that is written in parts, cut anywhere; it is opened for reading only."""
    data, size, before = run.journal.read_bytes(), run.journal.stat().st_size, run.journal.stat()
    files = RunFiles(tmp_path / "growing")
    files.directory.mkdir()
    follower, lines = Follower(files), 0
    edges = [0, size // 7, size // 3, size // 2 + 11, size - 5, size]
    for begin, end in itertools.pairwise(edges):
        with files.journal.open("ab") as file:
            file.write(data[begin:end])
        follower.update()
        assert follower.replay.lines >= lines
        lines = follower.replay.lines
        now = follower.snapshot()
        assert now.left_seconds is None or now.span_seconds + now.left_seconds == pytest.approx(180.0)
    assert not follower.update()
    assert lines == judged.replay.lines
    assert follower.replay.last_chain == judged.replay.last_chain
    following(run).snapshot()
    assert run.journal.stat().st_mtime_ns == before.st_mtime_ns
    assert {path.name for path in run.directory.iterdir()} == {"journal.jsonl", "config.toml"}


def test_at_the_end_it_says_what_the_score_says(run: RunFiles, judged: Judged) -> None:
    now = following(run).snapshot()
    assert now.state == "ended: deadline"
    assert now.best == (judged.score.quality.trial, judged.score.quality.validation_error)  # type: ignore[union-attr]
    assert {k: v for k, v in judged.score.trials.items() if v} == now.trials
    assert now.left_seconds is None
    assert now.curve[-1] > 0


@pytest.mark.parametrize(
    "scene",
    [
        Scene(),
        Scene(killed_at=25.0),
        Scene(lost=((1, 20.0),)),
        Scene(out_of_memory=frozenset({1})),
        Scene(minutes=0, max_trials=3),
    ],
)
def test_whatever_happened_in_it(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = examine(write_run(tmp_path / "run", told(scene)))
    monkeypatch.setattr("analysis.readings.live.glance_at", lambda files, replay: judged)
    now = following(judged.files).snapshot()
    assert now.ops_per_second == pytest.approx(judged.score.ops_per_second, rel=1e-12)


def test_it_tells_what_each_group_does(tmp_path: Path) -> None:
    timed = told(Scene(groups=2, lost=((1, 20.0),)))
    lost = next(i for i, (_, event) in enumerate(timed) if type(event).__name__ == "GroupLost")
    follower = following(write_run(tmp_path / "run", timed[: lost + 1]))
    first, second = follower.snapshot().groups
    assert (first.doing, second.doing, second.trial) == ("training", "lost", None)
    assert first.trial is not None
    assert first.host
    assert 0 < first.share <= 1
    now = follower.snapshot()
    assert now.state == "running"
    assert now.left_seconds is not None
    assert follower.snapshot(silent_seconds=125.0).state.startswith("silent for 2:05: killed")


def test_a_sparkline() -> None:
    assert (sparkline([], 10), sparkline([0, 0], 10), sparkline([1, 1, 3, 3], 2)) == ("", "▁▁", "▃█")
    assert sparkline([*range(9)], 20) == "▁▂▃▄▅▆▇██"


def snapshot(groups: int, slow: int = 0) -> Snapshot:
    running = [
        GroupNow(n, f"n{n}", "training", 7 + n, "of 4: widen", 0.5, 20, 0.123, 1234.5)
        for n in range(groups - 1)
    ]
    return Snapshot(
        run="a-run",
        preset="digits",
        machine="2 × a device on 2 hosts",
        state="running",
        span_seconds=65.0,
        left_seconds=55.0,
        ops_per_second=1.5e12,
        curve=[1e12, 2e12],
        bin_seconds=32.5,
        best=(3, 0.0512),
        trials={"COMPLETE": 5, "RUNNING": 2},
        rates_of="images",
        slow=[f"rank {n} on n{n} (a device): 40 % below the median" for n in range(slow)],
        groups=[*running, GroupNow(groups - 1, "n9", "lost", None, "", 0.0, 0, None, None)],
    )


def test_the_screens_are_these(as_it_was_read: Callable[[str, str], None]) -> None:
    """A wide one and small ones, of which those with 500 groups show the groups that do not train."""
    sizes = ((3, 0, 100, 24), (3, 1, 100, 24), (500, 0, 60, 20), (500, 7, 60, 20))
    drawn = [watch_text(snapshot(groups, slow), width, lines) for groups, slow, width, lines in sizes]
    assert all(len(text.splitlines()) <= lines for text, (*_, lines) in zip(drawn, sizes))
    assert all(len(line) <= size[2] for text, size in zip(drawn, sizes) for line in text.splitlines())
    as_it_was_read("\n----\n".join(drawn) + "\n", "screens.txt")


def test_a_slow_group_is_named_while_the_run_goes_on(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", resized(CIFAR, 2.0), Machine(groups=8, slow={5: 0.6}))
    whole = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join(whole[: len(whole) * 3 // 4]))
    follower = following(run)
    (text,) = follower.snapshot().slow
    assert text.startswith("group 5 on ")
    assert "<li>group 5 on " in live_html(follower.snapshot(), follower.replay, 2.0)


def test_a_run_that_has_ended_shows_its_verdict(copied: RunFiles) -> None:
    whole = copied.journal.read_bytes()
    copied.journal.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    follower = following(copied)
    assert follower.snapshot().verdict is None  # the test of the best network is missing
    assert "INCOMPLETE: the best network is being tested" in follower.snapshot().state
    copied.lock.touch()  # as its master leaves it if it is interrupted
    assert "NO RESULT: no network was tested: the test did not finish" in follower.snapshot().state
    copied.journal.write_bytes(whole)
    follower.update()
    now = follower.snapshot()
    assert now.verdict is not None
    assert now.verdict[0] == "VALID"
    assert now.verdict[1].startswith("Class smoke: a ranked result must also meet the rules search, data, ")
    assert follower.snapshot().verdict is now.verdict  # asked once
    assert f"VALID: {now.verdict[1]}" in watch_text(now, 300, 40).splitlines()
    page = live_html(now, follower.replay, 2.0)
    assert f'<span class="badge passed">VALID</span> <span>{now.verdict[1]}</span>' in page
    assert "<dt>sustained OPS</dt>" in page
    assert "time left" not in page
