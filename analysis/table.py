"""A table of text, as pages, terminals and files show it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Cell = str | tuple[str, float | str | None]
"""A text, or a text and what it is sorted by."""


@dataclass(frozen=True)
class Table:
    """Columns that hold figures are aligned right."""

    columns: Sequence[str]
    """Names of the columns."""
    rows: Sequence[Sequence[str]]
    """The text of each cell."""
    figures: Sequence[bool]
    """For each column, whether it holds figures."""
    keys: Sequence[Sequence[float | str | None]] | None = None
    """What cells are sorted by if it is not their text: figures before they were written. None: by the
    text."""

    @classmethod
    def of(cls, columns: Iterable[str], cells: Iterable[Iterable[Cell]], figures: Sequence[bool]) -> Table:
        """A table of cells of which some are sorted by a key other than their text."""
        pairs = [[(cell, None) if isinstance(cell, str) else cell for cell in row] for row in cells]
        rows = [[text for text, _ in row] for row in pairs]
        return cls(tuple(columns), rows, figures, [[key for _, key in row] for row in pairs])


def aligned(rows: Sequence[Sequence[str]], figures: Sequence[bool] = ()) -> str:
    """Columns as wide as their widest cell, figures to the right. `figures` says for each column whether it
    holds them; by default all but the first do."""
    figures = figures or (False, *[True] * (len(rows[0]) - 1))
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [
        [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, figures)
        ]
        for row in rows
    ]
    return "\n".join("  ".join(line).rstrip() for line in lines)


def comma_separated(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table for other programs (RFC 4180): figures unrounded, None as an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue()
