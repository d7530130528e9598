"""The search as a tree: every trial at its time and error, joined to its parent.

It answers whether the search made progress or had luck once: with progress the line of the best network falls
in many small steps, with luck in one. On the logarithmic axis of errors, halving the error is the same
distance at 20 % as at 2 %.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from aiperf.wording import clock, counted, percent
from analysis.pages.figures.picture import (
    COLOURS,
    MOST_ERROR,
    Drawing,
    Frame,
    Key,
    Picture,
    canvas,
    clock_axis,
    error_axis,
    pointed,
    zero_place,
)
from analysis.pages.figures.trial_dots import draw_dots, name_trials, named_key, names_of
from analysis.readings.trial_rows import TrialRow, line_of_descent
from analysis.table import Cell, Table

SIZES = ((0.75, 3.6), (1.5, 4.6), (2.5, 5.8), (4.0, 7.0), (8.0, 8.2), (float("inf"), 9.6))
"""Pairs of a multiple of the first trial's operations and the width in points of a dot below it. A few widths
are enough to compare, and a page describes each only once."""
Edge = tuple[tuple[float, float], tuple[float, float]]
"""Both ends of a line, each as time and error."""
Places = Mapping[int, tuple[float, float]]
"""Time in seconds and error, by the number of the trial."""


def lineage(shown: Sequence[TrialRow], total: int, best: int | None, span_seconds: float) -> Picture:
    """`shown`: trials with all their ancestors, of `total` in the run. `best`: number of the best network's
    trial; None if no trial was validated."""
    by_number = {row.number: row for row in shown}
    # Only trials that ended and were validated have a place; failed ones are at the upper edge.
    placed = [row for row in shown if row.error is not None and row.ended is not None]
    failed = [row for row in shown if row.error is None and row.ended is not None and row.state.ended]
    path = line_of_descent(by_number, best) if best is not None else []
    base = next((row.operations for row in shown if row.operations), 1)
    names = names_of(path)

    def draw(frame: Frame) -> Drawing:
        figure, (axes,) = canvas(frame, 300 if frame.narrow else 460)
        zero = zero_place([row.error or 0.0 for row in placed])
        where = {row.number: (row.ended or 0.0, max(row.error or 0.0, zero or 0.0)) for row in placed}
        edges = [
            (where[row.parent], where[row.number])
            for row in placed
            if row.parent is not None and row.parent in where
        ]
        # So faint that thousands of them make a shade, and the amber line is seen above it.
        axes.add_artist(_joined(edges, COLOURS["soft"], 0.5, 0.22))
        on_path = [where[row.number] for row in path if row.number in where]
        axes.add_artist(_joined(list(itertools.pairwise(on_path)), COLOURS["amber"], 2.0, 1.0))
        scale = 0.7 if frame.narrow else 1.0
        _dots(axes, placed, where, "blue", base, scale)
        _dots(axes, [row for row in path if row.number in where], where, "amber", base, scale)
        error_axis(axes, zero)
        if placed:  # room for a name below the lowest dot and above the highest
            errors = [error for _, error in where.values()]
            axes.set_ylim(min(errors) * 0.7, min(MOST_ERROR, max(errors) * 1.5))
        top = axes.get_ylim()[1]
        axes.plot(
            [row.ended or 0.0 for row in failed],
            [top / 1.06] * len(failed),
            "x",
            color=COLOURS["red"],
            ms=4,
            mew=1.0,
            clip_on=False,
            in_layout=False,
        )
        clock_axis(axes, span_seconds, frame)
        axes.set_xlim(0, 1.01 * max(span_seconds, 1e-9))
        name_trials(axes, names, where, frame)
        every = [*placed, *failed]
        times = [row.ended or 0.0 for row in every]
        heights = [*(where[row.number][1] for row in placed), *(top / 1.06 for _ in failed)]
        return pointed(figure, axes, times, heights, [row.number for row in every])

    legend = [
        Key("blue", "a trial; larger dots have more operations", "dot"),
        Key("amber", "the best network and its ancestors", "points"),
        *named_key(names),
    ]
    if failed:
        legend.append(Key("red", "a trial without a validation, so at no error: the upper edge", "cross"))
    return Picture(
        name="lineage",
        title="Trials by time and validation error",
        says=_says(shown, total, path),
        draw=draw,
        table=descent_table(path) if path else None,
        legend=legend,
        empty=not placed and not failed,
        lineage=True,
    )


def descent_table(path: Sequence[TrialRow]) -> Table:
    """The best network's line, from the seed on. The first known count is 1; a trial before it has no
    relative size."""
    base = next((row.operations for row in path if row.operations), None)

    def relative(operations: int | None) -> str:
        return "unknown" if operations is None or base is None else f"{operations / base:.2f}"

    cells: list[list[Cell]] = [
        [
            str(row.number),
            row.origin,
            ("none" if row.error is None else percent(row.error), row.error),
            (relative(row.operations), row.operations),
            ("" if row.ended is None else clock(row.ended), row.ended),
        ]
        for row in path
    ]
    columns = ("trial", "morphism", "validation error", "operations, relative to the first", "ended")
    return Table.of(columns, cells, (True, False, True, True, True))


def _says(shown: Sequence[TrialRow], total: int, path: Sequence[TrialRow]) -> str:
    """How many trials there are and are drawn, which network is best, and what to look for. The number of
    dispatched trials is that of the table of trials; other figures show fewer."""
    text = f"{counted(total, 'trial')} {'was' if total == 1 else 'were'} dispatched"
    if total > len(shown):
        text += f"; {len(shown):,} are drawn: the best, others at even distances, and the ancestors of both"
    elif missing := sum(row.ended is None or (row.error is None and not row.state.ended) for row in shown):
        text += f"; {missing:,} without a validation so far {'is' if missing == 1 else 'are'} not drawn"
    if path:
        steps = len(path) - 1
        text += f". The best network is trial {path[-1].number}"
        if path[-1].error is not None:
            text += f", validation error {percent(path[-1].error)}"
        if steps:
            text += (
                f", {counted(steps, 'generation')} below trial {path[0].number}. Look for the amber line "
                "from the seed to it: each step down is what a generation gained"
            )
    return text + "."


def _dots(axes: Axes, rows: Sequence[TrialRow], where: Places, colour: str, base: int, scale: float) -> None:
    """Draws dots in a few sizes, so that a page need not describe each dot anew. `base` are the operations of
    the first trial; `scale` makes dots smaller in a narrow frame."""
    by_size: dict[float, list[tuple[float, float]]] = {}
    for row in rows:
        ratio = (row.operations or base) / base
        size = next((size for bound, size in SIZES if ratio < bound), SIZES[-1][1])
        by_size.setdefault(size, []).append(where[row.number])
    for size, places in sorted(by_size.items(), reverse=True):
        x, y = zip(*places)
        size *= scale
        draw_dots(axes, x, y, colour, size, len(rows), zorder=3, clip_on=False, in_layout=False)


def _joined(edges: Sequence[Edge], colour: str, width: float, alpha: float) -> PathPatch:
    """All lines as one shape, so that a page with thousands of them stays small."""
    corners = np.array([point for edge in edges for point in edge]).reshape(-1, 2)
    codes = [Path.MOVETO, Path.LINETO] * len(edges)
    return PathPatch(
        Path(corners, codes) if edges else Path(np.zeros((0, 2))),
        fill=False,
        edgecolor=colour,
        lw=width,
        alpha=alpha,
        zorder=2,
        capstyle="round",
        in_layout=False,
    )
