"""Trials as a report shows them: in a table, and in a few lines beside a pointer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aiperf.score.score import Score
from aiperf.tasks.task import Task
from aiperf.wording import clock, percent, plain
from analysis.readings.trial_rows import TrialRow
from analysis.table import Cell, Table

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


def trial_table(task: Task, shown: Sequence[TrialRow]) -> Table:
    cells = ([cell(row) for cell in COLUMNS.values()] for row in shown)
    names = [name.format(example=task.example) for name in COLUMNS]
    return Table.of(names, cells, (True, True, False, False, *[True] * 7))


def trials_text(score: Score, found: Sequence[TrialRow], shown: Sequence[TrialRow]) -> str:
    if not found:
        return "No trial was dispatched."
    states = ", ".join(f"{num:,} {name.lower()}" for name, num in score.trials.items() if num)
    more = ""
    if len(shown) < len(found):
        more = (
            f" {len(shown):,} of them follow: the best, others at even distances, and the ancestors of both; "
            "`aiperf-hpc export --csv` writes all."
        )
    return f"{len(found):,} trials: {states}.{more}"


def trial_tip(task: Task, row: TrialRow) -> str:
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
