"""Parameters, operations and epochs to an error of every trial, compared with the control network.

After AIBench Training (Tang et al., ISPASS 2021), which places each of its 19 networks so: docs/beyond.md.
Epochs are counted since the weights were new, with those of the ancestors from which a child carries its
weights: otherwise every child would seem to learn in an epoch what its line learned in fifty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter
from numpy.typing import NDArray

from aiperf.tasks.task import Task
from aiperf.wording import counted, figure, percent, plain, scaled
from analysis.comparing.characteristics import ControlNetworkCost, Trained, spread_table, thirds
from analysis.pages.figures.picture import COLOURS, Drawing, Frame, Key, Picture, canvas, pointed, round_ticks
from analysis.pages.figures.trial_dots import TRIALS_SHOWN, draw_dots, name_trials, named_key, operations_axis

THIRDS = (("sky", 6.0), ("blue", 7.5), ("plum", 9.0))
"""Colour and size of those that reached the error: the more epochs, the darker and larger."""
NO_NAMES: Mapping[int, str] = {}
"""No trial is named."""
FARTHEST = 8.0
"""A control that is this many times beyond the trials is drawn at the edge: else they would be one dot."""


def characterisation(
    found: Sequence[Trained],
    error: float | None,
    task: Task,
    control: ControlNetworkCost | None,
    why: str = "",
    names: Mapping[int, str] = NO_NAMES,
) -> Picture:
    """`error`: None where no trial was validated. `why`: what it is, if nobody asked for it. Of very many
    trials those at even distances are drawn. `names`: of the trials that are named in it. `found` are trials
    with a validation and a counted architecture."""
    shown = found
    if len(found) > TRIALS_SHOWN:
        shown = [found[int(place)] for place in np.linspace(0, len(found) - 1, TRIALS_SHOWN)]
    parts = thirds(found)

    def draw(frame: Frame) -> Drawing:
        figure, (axes,) = canvas(frame, 300 if frame.narrow else 420)
        x = np.array([float(one.operations) for one in shown])
        y = np.array([float(one.parameters) for one in shown])
        # Never reached counts as infinitely many, so that no third of the others has it.
        epochs = np.array([inf if one.epochs is None else one.epochs for one in shown])
        parts_shown = [(~np.isfinite(epochs), "soft", 4.5)]
        for (low, high), (colour, size) in zip(parts, THIRDS):
            parts_shown.append(((epochs >= low) & (epochs <= high), colour, size))
        for chosen, colour, size in parts_shown:
            draw_dots(axes, x[chosen], y[chosen], colour, size, len(shown))
        _axes(axes, x, y, control, task, frame)
        places = {one.row.number: (float(one.operations), float(one.parameters)) for one in found}
        name_trials(axes, names, places, frame)
        return pointed(figure, axes, x, y)

    return Picture(
        name="characterisation",
        title="Parameters, operations and epochs to an error",
        says=_says(found, error, why, task, control),
        draw=draw,
        table=spread_table(found, error or 0.0, task, control) if found else None,
        legend=[*_legend(parts, error or 0.0, control), *named_key(names)],
        labels=[_label(one, error or 0.0, task) for one in shown],
        empty=not found,
    )


def _axes(
    axes: Axes,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    control: ControlNetworkCost | None,
    task: Task,
    frame: Frame,
) -> None:
    """Sets both logarithmic axes, and draws the control: at its place, or in the corner next to it if it is
    so far away that the trials would be one dot. `x` are operations of one training example, `y` parameters,
    of the trials that are drawn."""
    place = None
    if control is not None:
        ranges = ((control.operations, x), (control.parameters, y))
        near = [axis.min() / FARTHEST <= value <= axis.max() * FARTHEST for value, axis in ranges]
        place = [value for value, _ in ranges] if all(near) else None
    operations_axis(axes, x if place is None else np.append(x, place[0]), frame)
    axes.set_yscale("log")
    heights = y if place is None else np.append(y, place[1])
    room = 1.25 if place is not None or control is None else 1.6  # for the words in the corner
    axes.set_ylim(heights.min() * 0.85, heights.max() * room)
    round_ticks(axes.yaxis, 8)
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.set_xlabel(f"operations per training {task.example}")
    axes.set_ylabel("parameters")
    if place is not None:
        axes.plot([place[0]], [place[1]], "D", color=COLOURS["amber"], ms=8, clip_on=False, zorder=4)
    elif control is not None:
        right, up = (value > float(np.median(axis)) for value, axis in ranges)
        corner = (0.985 if right else 0.015, 0.97 if up else 0.03)
        axes.plot(*corner, "D", color=COLOURS["amber"], ms=8, transform=axes.transAxes, clip_on=False)
        axes.annotate(
            f"{control.short}: beyond this corner",
            corner,
            xycoords="axes fraction",
            xytext=(-10 if right else 10, 0),
            textcoords="offset points",
            ha="right" if right else "left",
            va="center",
            color=COLOURS["soft"],
            fontsize=frame.font_size,
        )


def _legend(
    parts: Sequence[tuple[float, float]], error: float, control: ControlNetworkCost | None
) -> list[Key]:
    """An entry for each third of those that reached the error, for those that did not, and for the
    control."""
    at = percent(error)
    keys = [Key(colour, f"{at} after {_epochs(third)}", "dot") for third, (colour, _) in zip(parts, THIRDS)]
    keys.append(Key("soft", f"{at} not reached", "dot"))
    if control is not None:
        keys.append(Key("amber", f"the control, {control.name}", "diamond"))
    return keys


def _says(
    found: Sequence[Trained], error: float | None, why: str, task: Task, control: ControlNetworkCost | None
) -> str:
    """How many trials reached the error and after how many epochs, and what the networks cost."""
    if not found or error is None:
        return "No trial has both a validation and a counted architecture."
    reached = [one.epochs for one in found if one.epochs is not None]
    num = counted(len(found), "validated trial")
    text = f"{len(reached):,} of {num} reached an error of {task.error_text(error)}{why}"
    if reached:
        text += f", after {_epochs(reached)}, including those of their ancestors"
    text += (
        f". A training {task.example} takes "
        f"{_range([one.operations for one in found], lambda value: scaled(value, 'OP'))}; networks have "
        f"{_range([one.parameters for one in found], lambda value: f'{value:,.0f}')} parameters."
    )
    if reached and len(found) > 1:
        text += (
            " Look for large dots at the upper right: larger networks that needed more epochs for the error."
        )
    if control is not None:
        text += (
            f" The control, {control.name}: {scaled(control.operations, 'OP')}, "
            f"{control.parameters:,} parameters."
        )
    return text


def _epochs(values: Sequence[float]) -> str:
    """ "1 epoch", "2 to 3 epochs"."""
    text = _range(values, figure)
    return f"{text} epoch{'' if text == '1' else 's'}"


def _range(values: Sequence[float], text: Callable[[float], str]) -> str:
    """The least and the greatest value as text; one text if they are shown alike."""
    low, high = text(min(values)), text(max(values))
    return low if low == high else f"{low} to {high}"


def _label(one: Trained, error: float, task: Task) -> str:
    """The text of the tooltip; the run is named if there are several."""
    row = one.row
    lines = [f"{plain(one.run)}, trial {row.number}" if one.run else f"Trial {row.number}", row.origin]
    lines.append(f"{one.operations:,} operations per {task.example}, {one.parameters:,} parameters")
    if row.intensity is not None:
        lines.append(f"{figure(row.intensity)} tensor operations per byte")
    reached = "not reached" if one.epochs is None else f"after {figure(one.epochs)} epochs"
    return "\n".join(
        [*lines, f"{percent(error)} {reached}", f"lowest error {task.error_text(row.error or 0.0)}"]
    )
