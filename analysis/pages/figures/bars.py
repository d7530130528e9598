"""Bars side by side: one per row and series.

Bars are horizontal, because names of layers and machines are longer than bars are wide, and each has its
figure beside it, so no axis is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from analysis.pages.figures.picture import COLOURS, Drawing, Frame, Key, Picture, canvas, pointed
from analysis.table import Table

ROOM = 1.16
"""Length of the axis, relative to the longest bar, next to which its figure is written."""
GAP = 0.006
"""Distance from a bar to its figure, relative to the longest bar."""


def bars(
    name: str,
    title: str,
    says: str,
    rows: Sequence[str],
    series: Mapping[str, tuple[str, Sequence[float | None]]],
    worded: Callable[[float], str],
    table: Table | None = None,
    room: float = ROOM,
    gap: float | None = None,
    hovered: Callable[[float], str] | None = None,
) -> Picture:
    """`series`: by its name a name in COLOURS and a value for each row; None draws no bar. `worded`: the text
    of a value; `hovered`: the same for a pointer, if it is another. `gap`: as `GAP`, in the unit of the
    values. Labels for a pointer are in the order of the series, then of the rows."""

    def draw(frame: Frame) -> Drawing:
        figure, (axes,) = canvas(frame, 30 + (15 * len(series) + 8) * len(rows))
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        axes.set_xticks([])
        thickness = 0.8 / len(series)  # of a row; the rest is the gap to the next one
        widths, heights = list[float](), list[float]()
        for place, (colour, values) in enumerate(series.values()):
            at = np.arange(len(rows)) + (place - (len(series) - 1) / 2) * thickness
            own = [value or 0.0 for value in values]
            axes.barh(at, own, height=0.92 * thickness, color=COLOURS[colour], lw=0)
            widths += own
            heights += at.tolist()
        # An axis must have a length, also if every value is 0 or unknown.
        longest = max([*widths, 1e-12])
        distance = GAP * longest if gap is None else gap
        every = [value for _, values in series.values() for value in values]
        for value, width, y in zip(every, widths, heights):
            text = "" if value is None else worded(value)
            size = frame.font_size - 1
            axes.text(width + distance, y, text, va="center", fontsize=size, color=COLOURS["soft"])
        axes.set_yticks(range(len(rows)), rows)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(0, room * longest)
        return pointed(figure, axes, np.zeros(len(widths)), heights, right=widths)

    tip = hovered or worded
    labels = [
        f"{row}, {one}\n{'unknown' if value is None else tip(value)}"
        for one, (_, values) in series.items()
        for row, value in zip(rows, values)
    ]
    legend = [Key(colour, one) for one, (colour, _) in series.items()] if len(series) > 1 else []
    return Picture(name, title, says, draw, table=table, legend=legend, labels=labels, covers=True)
