"""All trials of a run as comma-separated values, RFC 4180, one header line."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping

from aiperf.wording import harmless
from analysis.exports.result import unmeasured
from analysis.readings.judgement import Judged
from analysis.readings.trial_rows import TrialRow, median_error, rows

COLUMNS: Mapping[str, Callable[[TrialRow], object]] = {
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
MEDIAN = "epochs_to_median_error"
"""Column of the epochs that each trial took to the median of all their lowest errors, counted since its
weights were new."""


def csv_text(judged: Judged) -> str:
    """An empty cell is not known. Times are seconds of the span. Each line of a run that was not measured
    begins with its origin."""
    out, origin = io.StringIO(), unmeasured(judged.replay)
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([*origin, *COLUMNS, MEDIAN])
    found = rows(judged.replay, judged.recount.counts)
    error = median_error(found)
    for row in found:
        epochs = None if error is None else row.epochs_to(error)
        writer.writerow([*origin.values(), *(cell(row) for cell in COLUMNS.values()), epochs])
    return out.getvalue()
