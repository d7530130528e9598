"""Error against operations: what a lower error costs, and the networks that no other one beats in both.

The front is that of the trials as they were trained, some for a few epochs and some for many: it says what
this run found, not what an architecture can reach. Operations are those of one training example, forward and
backward.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aiperf.tasks.task import Task
from aiperf.wording import counted, percent, scaled
from analysis.pages.figures.picture import (
    COLOURS,
    MOST_ERROR,
    Drawing,
    Frame,
    Key,
    Picture,
    canvas,
    error_axis,
    pointed,
    zero_place,
)
from analysis.pages.figures.trial_dots import draw_dots, name_trials, named_key, operations_axis
from analysis.readings.trial_rows import TrialRow
from analysis.table import Cell, Table


@dataclass(frozen=True, slots=True)  # a long run has a hundred thousand of them
class Dot:
    """A trial with a validation whose architecture could be counted."""

    operations: int
    """Operations per training example."""
    error: float
    """Lowest validation error of the trial."""
    row: TrialRow
    """What the table and the pointer say of it."""


def dots(found: Sequence[TrialRow]) -> list[Dot]:
    """The trials that have a place in the figure; one without a validation or without a count has none. The
    order is that of the trials."""
    return [
        Dot(row.operations, row.error, row)
        for row in found
        if row.operations is not None and row.error is not None
    ]


def front(found: Sequence[Dot]) -> list[Dot]:
    """The dots for which no other has as few operations and as low an error, by rising operations.

    Of dots that are equal in both, it has the first.
    """
    best: list[Dot] = []
    for dot in sorted(found, key=lambda dot: (dot.operations, dot.error, dot.row.number)):
        # In the order of operations each further dot of the front must have a lower error than all before.
        if not best or dot.error < best[-1].error:
            best.append(dot)
    return best


def pareto(
    found: Sequence[TrialRow], task: Task, names: Mapping[int, str], pointed_at: Collection[int]
) -> Picture:
    """`names`: of the trials that are named in the figure. `pointed_at`: numbers of those of which it tells
    more to who points at them."""
    placed = dots(found)
    best = front(placed)
    numbers = [dot.row.number for dot in placed]
    on_front = np.isin(numbers, [dot.row.number for dot in best])
    x = np.array([float(dot.operations) for dot in placed])
    zero = zero_place([dot.error for dot in placed])
    y = np.array([max(dot.error, zero or 0.0) for dot in placed])

    def draw(frame: Frame) -> Drawing:
        figure, (axes,) = canvas(frame, 280 if frame.narrow else 400)
        # In steps: between two networks of the front nothing is known to be better than the cheaper one.
        line = [(dot.operations, max(dot.error, zero or 0.0)) for dot in best]
        axes.step(*zip(*line), where="post", color=COLOURS["amber"], lw=2.0, zorder=2)
        for chosen, colour in ((~on_front, "blue"), (on_front, "amber")):
            size = 4 if frame.narrow else 5.5
            draw_dots(axes, x[chosen], y[chosen], colour, size, len(placed), zorder=3)
        error_axis(axes, zero)
        axes.set_ylim(y.min() * 0.7, min(MOST_ERROR, float(y.max()) * 1.5))
        operations_axis(axes, x, frame)
        name_trials(axes, names, dict(zip(numbers, zip(x, y))), frame)
        axes.set_xlabel(f"operations per training {task.example}")
        told = np.isin(numbers, list(pointed_at))
        return pointed(figure, axes, x[told], y[told], [number for number in numbers if number in pointed_at])

    return Picture(
        name="pareto",
        title="Validation error against operations",
        says=_says(placed, best, task),
        draw=draw,
        table=_table(best, task) if best else None,
        legend=[
            Key("blue", "a trial", "dot"),
            Key("amber", "no other trial has both fewer operations and a lower error", "points"),
            *named_key(names),
        ],
        empty=not placed,
    )


def _says(placed: Sequence[Dot], best: Sequence[Dot], task: Task) -> str:
    """Where the front begins and ends; without a front, why there is none."""
    if not best:
        return "No trial has both a validation and a counted architecture."
    num = counted(len(placed), "validated trial")
    ends = [
        f"trial {dot.row.number} ({scaled(dot.operations, 'OP')}, {percent(dot.error)})"
        for dot in (best[0], best[-1])
    ]
    if len(best) == 1:
        return f"Of {num} {ends[0]} has both the fewest operations and the lowest error."
    return (
        f"For {len(best)} of {num} no other trial has both fewer operations and a lower error: from "
        f"{ends[0]} to {ends[1]}. Operations are those per training {task.example}. "
        "Trials also differ in length. Look for how far to the lower right of the seed the best network is: "
        "so much error was gained for so many operations."
    )


def _table(best: Sequence[Dot], task: Task) -> Table:
    """The networks of the front, by rising operations."""
    base = best[0].operations
    cells: list[list[Cell]] = [
        [
            str(dot.row.number),
            dot.row.origin,
            (f"{dot.operations:,}", dot.operations),
            (f"{dot.operations / base:.2f}", dot.operations),
            (f"{dot.row.parameters:,}", dot.row.parameters),
            (percent(dot.error), dot.error),
            (str(dot.row.epochs), dot.row.epochs),
        ]
        for dot in best
    ]
    head = ("trial", "morphism", f"operations per training {task.example}", "relative to the first")
    figures = (True, False, True, True, True, True, True)
    return Table.of((*head, "parameters", "validation error", "epochs planned"), cells, figures)
