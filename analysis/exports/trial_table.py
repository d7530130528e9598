"""Trials as a report shows them: in a table, and in a few lines beside a pointer."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.score.score import Score
from aiperf.wording import clock, percent, plain
from analysis.readings.trials import TrialRow
from analysis.table import Table


def trial_table(shown: Sequence[TrialRow]) -> Table:
    texts: list[list[str]] = []
    keys: list[list[float | str | None]] = []
    for row in shown:
        texts.append(
            [
                str(row.number),
                "" if row.parent is None else str(row.parent),
                row.origin,
                row.state.value.lower(),
                "" if row.error is None else percent(row.error),
                "" if row.operations is None else f"{row.operations:,}",
                "" if row.parameters is None else f"{row.parameters:,}",
                f"{row.images:,}",
                str(row.group),
                "" if row.began is None else clock(row.began),
                "" if row.ended is None else clock(row.ended),
            ]
        )
        keys.append([None, None, None, None, row.error, None, None, None, None, row.began, row.ended])
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
    figures = (True, True, False, False, True, True, True, True, True, True, True)
    return Table(columns, texts, figures, keys)


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
