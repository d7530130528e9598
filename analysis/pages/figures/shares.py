"""Where the time of the groups went."""

from __future__ import annotations

import numpy as np

from aiperf.wording import clock, percent
from analysis.pages.figures.picture import Drawing, Key, Marks, Picture, marks_of
from analysis.pages.figures.style import COLOURS, Frame, canvas
from analysis.readings.occupancy import PARTS, Occupancy
from analysis.table import Table

_COLOURS = {"train": "blue", "validate": "sky", "prepare": "amber", "wait": "faint", "lost": "plum"}
_WORDS = {
    "train": "credited training",
    "validate": "credited validation",
    "prepare": "waiting for the next network to be ready",
    "wait": "otherwise idle",
    "lost": "lost: uncredited work and lost groups",
}
GROUPS_SHOWN = 2


def time_shares(found: Occupancy) -> Picture:
    """Shares of time: all groups as one bar; of several groups, those with least and most training below
    it."""
    shares = found.shares
    bars = _bars(found)

    def draw(frame: Frame) -> Drawing:
        figure, (axes,) = canvas(frame, 30 + 34 * len(bars))
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        left = np.zeros(len(bars))
        centres, heights = [], []
        for part in PARTS:
            values = np.array([values[part] for _, values in bars])
            axes.barh(range(len(bars)), values, left=left, height=0.62, color=COLOURS[_COLOURS[part]], lw=0)
            for place, value in enumerate(values):
                centres.append((left[place], left[place] + value))
                heights.append(float(place))
            left = left + values
        axes.set_xlim(0, 1)
        axes.set_ylim(len(bars) - 0.5, -0.5)
        axes.set_yticks(range(len(bars)), [name for name, _ in bars])
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        edges = np.array(centres)
        # Marks stand part by part; a label names the bar and the part.
        return Drawing(
            figure,
            lambda: Marks(marks_of(axes, edges[:, 0], edges[:, 1], np.array(heights)), range(len(heights))),
        )

    labels = [
        f"{name}\n{_WORDS[part]}: {percent(values[part], 1)}" for part in PARTS for name, values in bars
    ]
    total = float(found.span_of_group.sum())
    rows = [[_WORDS[part], percent(shares[part], 2), clock(shares[part] * total)] for part in PARTS]
    keys = [[None, shares[part], shares[part] * total] for part in PARTS]
    said = ", ".join(f"{percent(shares[part], 1)} {part}" for part in PARTS)
    return Picture(
        name="time",
        title="Where the time went",
        says=f"Shares of the groups' time in the span: {said}." if total else "There is no span yet.",
        draw=draw,
        table=Table(("part", "share", "group time"), rows, (False, True, True), keys),
        legend=[Key(_COLOURS[part], _WORDS[part]) for part in PARTS],
        labels=labels,
        empty=not total,
    )


def _bars(found: Occupancy) -> list[tuple[str, dict[str, float]]]:
    bars = [("all", found.shares)]
    there = [group for group in range(found.num_groups) if found.span_of_group[group] > 0]
    if len(there) < 2:
        return bars
    order = sorted(there, key=lambda group: found.seconds[group, 0] / found.span_of_group[group])
    for group in dict.fromkeys((order[-1], order[0])):
        values = found.seconds[group] / found.span_of_group[group]
        bars.append((f"group {group}", dict(zip(PARTS, map(float, values)))))
    return bars
