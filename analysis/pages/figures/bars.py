"""Bars side by side: of each row one for each series."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from analysis.pages.figures.picture import Drawing, Key, Marks, Picture, marks_of
from analysis.pages.figures.style import COLOURS, Frame, canvas
from analysis.table import Table

ROOM = 1.16
"""Times the longest bar: its figure stands behind it."""


def bars(
    name: str,
    title: str,
    says: str,
    rows: Sequence[str],
    series: Mapping[str, tuple[str, Sequence[float | None]]],
    worded: Callable[[float], str],
    table: Table | None = None,
) -> Picture:
    """`series`: by its name a colour of style.COLOURS and a value for each row; None draws no bar."""

    def draw(frame: Frame) -> Drawing:
        figure, (axes,) = canvas(frame, 30 + (15 * len(series) + 8) * len(rows))
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        axes.set_xticks([])
        height = 0.8 / len(series)
        widths, heights = [], []
        for place, (colour, values) in enumerate(series.values()):
            at = np.arange(len(rows)) + (place - (len(series) - 1) / 2) * height
            own = np.array([value or 0.0 for value in values])
            axes.barh(at, own, height=0.92 * height, color=COLOURS[colour], lw=0)
            widths += own.tolist()
            heights += at.tolist()
        longest = max([*widths, 1e-12])
        said = [value for _, values in series.values() for value in values]
        for value, width, y in zip(said, widths, heights):
            text = "" if value is None else worded(value)
            axes.text(
                width + 0.006 * longest,
                y,
                text,
                va="center",
                fontsize=frame.font_size - 1,
                color=COLOURS["soft"],
            )
        axes.set_yticks(range(len(rows)), rows)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(0, ROOM * longest)
        ends = np.array(widths)
        return Drawing(
            figure,
            lambda: Marks(marks_of(axes, np.zeros(len(ends)), ends, np.array(heights)), range(len(ends))),
        )

    labels = [
        f"{row}, {one}\n{'unknown' if value is None else worded(value)}"
        for one, (_, values) in series.items()
        for row, value in zip(rows, values)
    ]
    legend = [Key(colour, one) for one, (colour, _) in series.items()] if len(series) > 1 else []
    return Picture(name, title, says, draw, table=table, legend=legend, labels=labels)
