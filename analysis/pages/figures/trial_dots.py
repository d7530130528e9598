"""What figures of trials as dots share: the dots, the axis of operations, and the names of the trials that a
reader looks for, which are the best network, its parent and the seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter
from numpy.typing import ArrayLike, NDArray

from analysis.pages.figures.picture import COLOURS, Frame, Key, round_text, round_ticks
from analysis.readings.trial_rows import TrialRow

BEST, PARENT, SEED = "best", "its parent", "seed"
RASTERISED = 4_000
"""More dots than this are drawn as an image, which keeps the page small."""


def draw_dots(
    axes: Axes, x: ArrayLike, y: ArrayLike, colour: str, size: float, num: int, **layout: Any
) -> None:
    """Dots of one colour and one width in points, which are some of the `num` dots of the figure."""
    edge: dict[str, Any] = {"mec": COLOURS["paper"], "mew": 0.5, "alpha": 0.9}
    axes.plot(x, y, "o", color=COLOURS[colour], ms=size, rasterized=num > RASTERISED, **edge, **layout)


def operations_axis(axes: Axes, x: NDArray[np.float64], frame: Frame) -> None:
    """Sets a logarithmic axis that is as long as these operations need, with ticks at round numbers."""
    axes.set_xscale("log")
    axes.set_xlim(x.min() * 0.93, x.max() * 1.07)
    round_ticks(axes.xaxis, 4 if frame.narrow else 8)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: round_text(value, "OP")))


def names_of(path: Sequence[TrialRow]) -> dict[int, str]:
    """Names by number, of a line of descent from the seed to the best network. A trial that is two of them is
    named for the later."""
    if not path:
        return {}
    found = {path[0].number: SEED}
    if len(path) > 1:
        found[path[-2].number] = PARENT if len(path) > 2 else f"{SEED}, {PARENT}"
    found[path[-1].number] = BEST if len(path) > 1 else f"{BEST}, the {SEED}"
    return found


def name_trials(
    axes: Axes, names: Mapping[int, str], places: Mapping[int, Sequence[float]], frame: Frame
) -> None:
    """Rings the dots of the named trials that have a place, and writes their names: that of the best below
    its dot, the others above, so that a child next to its parent does not cover it. To be called once the
    limits of the axes are set."""
    for number, name in names.items():
        if number not in places:
            continue
        x, y = places[number]
        axes.plot([x], [y], "o", mfc="none", mec=COLOURS["ink"], mew=1.4, ms=11, zorder=4, clip_on=False)
        across = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))[0]
        axes.annotate(
            name,
            (x, y),
            xytext=(0, -15 if name.startswith(BEST) else 12),
            textcoords="offset points",
            ha="left" if across < 0.15 else "right" if across > 0.85 else "center",
            va="center",
            color=COLOURS["ink"],
            fontsize=frame.font_size,
            bbox={"boxstyle": "round,pad=0.15", "fc": COLOURS["paper"], "ec": "none", "alpha": 0.8},
            zorder=5,
            in_layout=False,
        )


def named_key(names: Mapping[int, str]) -> list[Key]:
    """The legend's entry of the rings."""
    return [Key("ink", "the best network, its parent and the seed", "ring")] if names else []
