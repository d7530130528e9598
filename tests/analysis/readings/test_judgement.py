"""A run as reports see it: its verdict, its figures in words, its trials, and one sentence on it."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aiperf.journal.events import Beat, GroupLost, LegBegan, RankReady
from aiperf.journal.file import chained, read_journal
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.rules.ending import Answer, Shortfall
from aiperf.rules.rule import Outcome
from aiperf.tasks.images.tally import Classified
from aiperf.tasks.language.tally import Predicted
from aiperf.wire.trial import State
from analysis.exports.summary import status_text, summary_text
from analysis.readings import judgement as module
from analysis.readings import validation
from analysis.readings.conclusion import GroupHealth, conclusion, group_health, groups_text, losses_text
from analysis.readings.judgement import Judged, examine, glance, read_run
from analysis.readings.outliers import Outlier, outliers
from analysis.readings.progress import progress
from analysis.readings.run_tables import verdict_word
from analysis.readings.score_figures import ERROR, RATE, figures
from analysis.readings.trial_rows import TrialRow, line_of_descent, most_telling, rows
from nas.ops import OPS
from tests.journals import Scene, told, write_run
from tests.tables import ComesTo


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Runs of more than ten trials are long, and what is kept is kept here."""
    monkeypatch.setattr(module, "COUNTED_AGAIN", 10)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.usefixtures("long")
def test_a_long_run_is_taken_as_recorded_and_said_so(
    run: RunFiles, judged: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gc.get_freeze_count", lambda: 0)
    found = glance(run)
    gc.freeze()  # as it was
    assert (found.validated, found.valid) == (False, False)
    assert verdict_word(found.verdict, found.validated) == "NOT VALIDATED"
    unknown = {f.rule for f in found.verdict.findings if f.outcome is Outcome.UNKNOWN}
    assert unknown >= {"operations", "bounds", "search"}
    assert found.score == replace(judged.score, aiperf1_ops_per_second=None)
    assert found.layers is None


def keep(files: RunFiles, judged: Judged) -> Path:
    """What `validate` keeps of this run, and where."""
    assert judged.layers is not None
    assert not validation.save(files, judged.replay, judged.verdict.findings, judged.layers)
    return validation.own_file(judged.replay).path


@pytest.mark.usefixtures("long")
def test_a_validation_is_remembered_by_who_made_it(copied: RunFiles, judged: Judged) -> None:
    before = sorted(copied.directory.rglob("*"))
    keep(copied, judged)
    found = glance(copied)
    assert (found.verdict, found.layers, found.valid) == (judged.verdict, judged.layers, True)
    assert sorted(copied.directory.rglob("*")) == before, "a view or a validation wrote into the run"


def test_of_a_short_run_nothing_kept_is_believed(
    copied: RunFiles, judged: Judged, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keep(copied, replace(judged, verdict=replace(judged.verdict, findings=())))
    assert glance(copied).verdict == judged.verdict


Change = Callable[[RunFiles, Path], object]
"""Changes something of a run, or of what is kept about it."""


def other(field: str) -> Change:
    def change(files: RunFiles, kept: Path) -> None:
        record = json.loads(kept.read_text())
        record[field] = {} if isinstance(record[field], dict) else "0" * 64
        kept.write_text(json.dumps(record))

    return change


def with_a_log(files: RunFiles, kept: Path) -> None:
    files.logs_directory.mkdir(exist_ok=True)
    files.witness("node1", 1).write_text("{}")


def with_a_line_more(files: RunFiles, kept: Path) -> None:
    *_, last = read_journal(files.journal)
    (line,) = chained([(last.t + 1, Beat())], last.chain)
    with files.journal.open("a") as file:
        file.write(line + "\n")


def with_an_early_line_edited(files: RunFiles, kept: Path) -> None:
    lines = files.journal.read_text().splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines) if '"Dispatched"' in line)
    lines[place] = lines[place].replace('"forward":[', '"forward":[4')
    files.journal.write_text("".join(lines))


@pytest.mark.usefixtures("long")
def test_a_validation_of_anything_else_is_not_taken(
    run: RunFiles,
    judged: Judged,
    folders: Iterator[Path],
    monkeypatch: pytest.MonkeyPatch,
    comes_to_what_was_read: ComesTo,
) -> None:
    def taken(change: Change) -> bool:
        """Whether what is kept of a run is taken after a change."""
        monkeypatch.setenv("XDG_CACHE_HOME", str(next(folders)))
        files = RunFiles(shutil.copytree(run.directory, next(folders)))
        kept = keep(files, replace(judged, files=files))
        change(files, kept)
        return validation.load(files, read_run(files)) is not None

    comes_to_what_was_read("kept_validations.txt", {**globals(), "taken": taken})


def test_a_verdict_without_the_seed_says_invalid(judged: Judged) -> None:
    failed = [
        replace(f, outcome=Outcome.FAILED, text="torn") if f.rule == "chain" else f
        for f in judged.verdict.findings
    ]
    assert verdict_word(replace(judged.verdict, findings=tuple(failed)), validated=False) == "INVALID"


def test_what_is_not_known_says_why(tmp_path: Path, as_it_was_read: Callable[[str, str], None]) -> None:
    judged = examine(write_run(tmp_path / "run", told(Scene())[:6]))
    lines = [f"{key}: {one.line}\n" for key, one in figures(judged.replay, judged.score).items()]
    as_it_was_read("".join(lines), "unknown.txt")


def test_of_a_bound_it_is_said_that_it_is_one(judged: Judged) -> None:
    quality = judged.score.quality
    assert quality is not None
    for test, how in (
        (Classified(200, 200), "1/(2 × 200) = 0.0025"),
        (Predicted(2, 0, 512), "1/(2 × 4,096 bits) = 0.00012207"),
    ):
        none_wrong = replace(quality, test=test, error=0.0, error_is_bound=True)
        found = figures(judged.replay, replace(judged.score, quality=none_wrong))
        assert found["error"].line.startswith("0.00 % (0")
        assert found["regulated_score"].aside.endswith(
            f"; no test example was wrong, so {how} is the error here"
        )


def row(number: int, parent: int | None = None, error: float | None = 0.5) -> TrialRow:
    return TrialRow(number, parent, (), State.COMPLETE, "", error, 10, 5, 0, 1, "", 1, 8, 0.1, 100, 0.0, 1.0)


def test_a_row_tells_what_the_journal_tells(judged: Judged) -> None:
    found = rows(judged.replay, judged.recount.counts)
    assert [one.number for one in found] == sorted(judged.replay.trials)
    for one in found:
        story = judged.replay.trials[one.number]
        assert (one.parent, one.state, one.error) == (story.trial.parent, story.state, story.error)
        assert one.operations == judged.recount.counts[one.number].train.price(OPS)
        assert (one.began is None) == (story.attempts[-1].began is None)
    assert any(one.state is State.FAILED and one.reason for one in found)


def test_the_line_of_descent_ends_at_the_seed() -> None:
    found = {one.number: one for one in [row(0), row(1, 0), row(2, 0), row(3, 1)]}
    assert [one.number for one in line_of_descent(found, 3)] == [0, 1, 3]
    assert [one.number for one in line_of_descent(found, 0)] == [0]
    assert len(line_of_descent({1: row(1, 2), 2: row(2, 1)}, 1)) <= 3  # a circle ends


def test_what_is_shown_of_many_holds_the_best_and_every_ancestor() -> None:
    many = [row(0)] + [row(n, (n - 1) // 2, 1 / (1 + (n * 37) % 1000)) for n in range(1, 5000)]
    shown = most_telling(many, 500)
    numbers = {one.number for one in shown}
    best = min(many, key=lambda one: one.error or 1)
    assert len(shown) <= 500
    assert best.number in numbers
    assert all(one.parent in numbers for one in shown if one.parent is not None)
    assert [one.number for one in shown] == sorted(numbers)
    halves = [sum(n < 2500 for n in numbers), sum(n >= 2500 for n in numbers)]
    assert min(halves) > 40
    assert most_telling(many[:10], 10) == many[:10]


def test_progress_falls_and_ends_at_the_best_with_all_operations(judged: Judged) -> None:
    found, best = progress(judged.replay, judged.score), judged.replay.best
    assert best is not None
    assert (np.diff(found.best) < 0).all()
    assert (np.diff(found.best_from) >= 0).all()
    assert found.best[-1] == best.error == found.errors.min()
    assert found.best_trials[-1] == best.number
    assert best.error is not None
    expected = -np.log(best.error) * judged.score.goodput.operations / judged.score.span_seconds
    assert found.regulated[-1] == pytest.approx(expected, rel=1e-9)


def lost(*reasons: tuple[int, str]) -> Replay:
    """A leg in which these groups were lost, group 1 having come back."""
    found = Replay()
    found.add(0.0, LegBegan(0, "", (), tuple((1 + group,) for group in range(9))))
    for group, reason in reasons:
        found.add(1.0, GroupLost(group, reason))
    for _, event in told(Scene(groups=2, minutes=0.05)):
        if isinstance(event, RankReady) and event.group == 1:
            found.add(2.0, event)
    return found


def test_the_result_and_the_status_say_who_was_lost(judged: Judged) -> None:
    reason = "group 3: node0004 does not answer any more"
    result = summary_text(judged)
    for text in (result, status_text(judged.replay, judged.files)):
        (line,) = [line for line in text.splitlines() if line.startswith("lost")]
        assert line.split(None, 1)[1] == reason
    assert "\ngroups                  4, of these 1 lost\n" in result
    assert " 0 lost; 1 attempt lost and repeated; " in result


def said(judged: Judged, system: str = "", validated: bool = True) -> str:
    health = group_health(judged.replay, outliers(judged.replay))
    return conclusion(judged.replay, judged.score, judged.verdict, validated, health, system)


def test_a_run_is_told_in_one_sentence_and_what_is_no_result_is_not_told_as_one(
    judged: Judged, comes_to_what_was_read: ComesTo
) -> None:
    """Slow groups are counted with those of slow ranks: ranks 1 and 2 are group 0, rank 3 is of group 1. Each
    loss is told with its reason and who came back. Shares differ by points, and rates by per cent."""

    def lacks(answer: Answer, text: str) -> Judged:
        return replace(judged, verdict=replace(judged.verdict, shortfall=Shortfall(answer, text)))

    def health(*slow: str) -> str:
        slower = [Outlier(("n1",), ("x",), who, "before the span", 0.8, "slow") for who in slow]
        return groups_text(group_health(judged.replay, slower))

    findings = tuple(replace(one, outcome=Outcome.FAILED) for one in judged.verdict.findings)
    invalid = replace(judged, verdict=replace(judged.verdict, findings=findings))
    again = lost((3, "gone"))
    again.add(3.0, LegBegan(1, "", (), ((1,),)))
    names = {
        "judged": judged,
        "invalid": invalid,
        "lacks": lacks,
        "health": health,
        "again": again,
        "Answer": Answer,
    }
    readings = {"losses_text": losses_text, "groups_text": groups_text, "ERROR": ERROR, "RATE": RATE}
    comes_to_what_was_read("sentences.txt", {**globals(), **names, **readings, "GroupHealth": GroupHealth})
