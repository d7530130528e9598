"""Rows of trials, their line of descent, the choice of those that are shown, and progress over time."""

from __future__ import annotations

import numpy as np
import pytest

from aiperf.trial import State
from analysis.readings.judged import Judged
from analysis.readings.progress import progress
from analysis.readings.trials import TrialRow, line_of_descent, most_telling, rows
from nas.ops import OPS


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


def test_a_lineage_that_runs_in_a_circle_ends() -> None:
    found = {1: row(1, 2), 2: row(2, 1)}
    assert len(line_of_descent(found, 1)) <= 3


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


def test_few_are_all_shown() -> None:
    few = [row(n) for n in range(10)]
    assert most_telling(few, 10) == few


def test_progress_falls_and_ends_at_the_best(judged: Judged) -> None:
    found, best = progress(judged.replay, judged.score), judged.replay.best
    assert best is not None
    assert (np.diff(found.best) < 0).all()
    assert (np.diff(found.best_from) >= 0).all()
    assert found.best[-1] == best.error == found.errors.min()
    assert found.best_trials[-1] == best.number


def test_the_last_regulated_score_is_of_all_operations(judged: Judged) -> None:
    found, best = progress(judged.replay, judged.score), judged.replay.best
    assert best is not None
    assert best.error is not None
    expected = -np.log(best.error) * judged.score.goodput.operations / judged.score.span_seconds
    assert found.regulated[-1] == pytest.approx(expected, rel=1e-9)
