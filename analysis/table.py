"""A table of text, as pages, terminals and files show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Table"]


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
