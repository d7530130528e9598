"""A table of text, as pages, terminals and files show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Columns that hold figures are aligned right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    figures: Sequence[bool]
    """For each column, whether it holds figures."""
    keys: Sequence[Sequence[float | str | None]] | None = None
    """What the cells are sorted by where that is not their text: figures before they were worded. None: by
    the text."""


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *[cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]]
        ).rstrip()
        for row in rows
    ]
    return "\n".join(lines)
