"""Trials as a report shows them: in a table, and in a few lines beside a pointer."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.score.score import Score
from aiperf.wording import clock, percent, plain
from analysis.readings.trials import TrialRow
from analysis.table import Cell, Table


def trial_table(shown: Sequence[TrialRow]) -> Table:
    cells: list[list[Cell]] = [
        [
            str(row.number),
            "" if row.parent is None else str(row.parent),
            row.origin,
            row.state.value.lower(),
            ("" if row.error is None else percent(row.error), row.error),
            "" if row.operations is None else f"{row.operations:,}",
            "" if row.parameters is None else f"{row.parameters:,}",
            f"{row.images:,}",
            str(row.group),
            ("" if row.began is None else clock(row.began), row.began),
            ("" if row.ended is None else clock(row.ended), row.ended),
        ]
        for row in shown
    ]
    columns = (
        "trial",
        "parent",
        "morphism",
        "state",
        "validation error",
        "OPS an image",
        "parameters",
        "images trained",
        "group",
        "began",
        "ended",
    )
    return Table.of(columns, cells, (True, True, False, False, *[True] * 7))


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


def trial_tip(row: TrialRow) -> str:
    parent = "" if row.parent is None else f" of {row.parent}"
    lines = [f"Trial {row.number}, {row.state.value.lower()}", f"{row.origin}{parent}"]
    if row.error is not None:
        lines.append(f"validation error {percent(row.error)}")
    if row.operations is not None:
        lines.append(f"{row.operations:,} OPS an image")
    if row.began is not None and row.ended is not None:
        lines.append(f"group {row.group}, {clock(row.began)} to {clock(row.ended)}")
    if row.reason:
        lines.append(plain(row.reason))
    return "\n".join(lines)
