"""All trials of a run as comma-separated values, RFC 4180, one header line."""

from __future__ import annotations

import csv
import io

from aiperf.wording import plain
from analysis.readings.judged import Judged
from analysis.readings.trials import rows

COLUMNS = (
    "trial",
    "parent",
    "morphisms",
    "state",
    "reason",
    "validation_error",
    "ops_per_training_image",
    "parameters",
    "group",
    "attempts",
    "epochs",
    "batch_size",
    "learning_rate",
    "trained_images",
    "began_seconds",
    "ended_seconds",
)


def csv_text(judged: Judged) -> str:
    """Empty is: not known. Times are seconds of the span."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in rows(judged.replay, judged.recount.counts):
        writer.writerow(
            [
                row.number,
                row.parent,
                "; ".join(row.morphisms),
                row.state.value,
                harmless(row.reason),
                row.error,
                row.operations,
                row.parameters,
                row.group,
                row.attempts,
                row.epochs,
                row.batch_size,
                row.learning_rate,
                row.images,
                row.began,
                row.ended,
            ]
        )
    return out.getvalue()


def harmless(text: str) -> str:
    """A line that no spreadsheet takes for a formula (OWASP, "CSV Injection")."""
    text = plain(text)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
