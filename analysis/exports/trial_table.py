"""Trials as tables: all of them as comma-separated values, and those that a report shows, in words.

The CSV is for programs: names say the unit, values are unrounded, an empty cell is unknown. The table is for
readers: values are rounded and sorted by what they were before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aiperf.score.score import Score
from aiperf.tasks.task import Task
from aiperf.wire.trial import State
from aiperf.wording import clock, counted, harmless, percent, plain
from analysis.exports.result import unmeasured
from analysis.readings.judgement import Judged
from analysis.readings.trial_rows import TrialRow, median_error, rows
from analysis.table import Cell, Table, comma_separated

# The heads are templates, because a task calls its examples images, windows or otherwise.
COLUMNS: Mapping[str, Callable[[TrialRow], Cell]] = {
    "trial": lambda row: str(row.number),
    "parent": lambda row: "" if row.parent is None else str(row.parent),
    "morphism": lambda row: row.origin,
    "state": lambda row: row.state.value.lower(),
    "validation error": lambda row: ("" if row.error is None else percent(row.error), row.error),
    "operations per {example}": lambda row: "" if row.operations is None else f"{row.operations:,}",
    "parameters": lambda row: "" if row.parameters is None else f"{row.parameters:,}",
    "{example}s trained": lambda row: f"{row.examples:,}",
    "group": lambda row: str(row.group),
    "began": lambda row: ("" if row.began is None else clock(row.began), row.began),
    "ended": lambda row: ("" if row.ended is None else clock(row.ended), row.ended),
}
"""Cells of the table by the head of their column."""
CSV_COLUMNS: Mapping[str, Callable[[TrialRow], object]] = {
    "trial": lambda row: row.number,
    "parent": lambda row: row.parent,
    "morphisms": lambda row: "; ".join(row.morphisms),
    "state": lambda row: row.state.value,
    "reason": lambda row: harmless(row.reason),
    "validation_error": lambda row: row.error,
    "ops_per_training_example": lambda row: row.operations,
    "parameters": lambda row: row.parameters,
    "group": lambda row: row.group,
    "attempts": lambda row: row.attempts,
    "engine": lambda row: row.engine,
    "epochs": lambda row: row.epochs,
    "batch_size": lambda row: row.batch_size,
    "learning_rate": lambda row: row.learning_rate,
    "trained_examples": lambda row: row.examples,
    "began_seconds": lambda row: row.began,
    "ended_seconds": lambda row: row.ended,
    "tensor_ops_per_byte": lambda row: row.intensity,
}
"""Values of the CSV by the name of their column."""
MEDIAN = "epochs_to_median_error"
"""Column of the epochs that each trial took to the median of all their lowest errors, counted since its
weights were new."""


def csv_text(judged: Judged) -> str:
    """All trials, with times in seconds of the span. Each line of a run that was not measured begins with its
    origin."""
    origin, found = unmeasured(judged.replay), rows(judged.replay, judged.recount.counts)
    error = median_error(found)
    lines = (
        [
            *origin.values(),
            *(cell(row) for cell in CSV_COLUMNS.values()),
            None if error is None else row.epochs_to(error),
        ]
        for row in found
    )
    return comma_separated([*origin, *CSV_COLUMNS, MEDIAN], lines)


def trial_table(task: Task, shown: Sequence[TrialRow]) -> Table:
    """The chosen trials, with names of columns as the task calls its examples."""
    cells = ([cell(row) for cell in COLUMNS.values()] for row in shown)
    names = [name.format(example=task.example) for name in COLUMNS]
    return Table.of(names, cells, (True, True, False, False, *[True] * 7))


def trials_text(score: Score, found: Sequence[TrialRow], shown: Sequence[TrialRow]) -> str:
    """A sentence above the table: how many trials there were, and which of them are in it."""
    if not found:
        return "No trial was dispatched."
    words = {State.WAITING.value: "waiting (sent to a group that had not begun it)"}
    states = ", ".join(
        f"{num:,} {words.get(name, name.lower())}" for name, num in score.trials.items() if num
    )
    more = ""
    # A page of all trials of a long run would be too long to open.
    if len(shown) < len(found):
        more = (
            f" {len(shown):,} of them follow: the best, others at even distances, and the ancestors of both; "
            "`aiperf-hpc export --csv` writes all."
        )
    return f"{counted(len(found), 'trial')} dispatched: {states}.{more}"


def trial_tip(task: Task, row: TrialRow) -> str:
    """A few lines next to the pointer; unlike a cell, they also say why a trial failed."""
    parent = "" if row.parent is None else f" of {row.parent}"
    lines = [f"Trial {row.number}, {row.state.value.lower()}", f"{row.origin}{parent}"]
    if row.error is not None:
        lines.append(f"validation error {percent(row.error)}")
    if row.operations is not None:
        lines.append(f"{row.operations:,} operations per {task.example}")
    if row.began is not None and row.ended is not None:
        lines.append(f"group {row.group}, {clock(row.began)} to {clock(row.ended)}")
    if row.reason:
        lines.append(plain(row.reason))
    return "\n".join(lines)
