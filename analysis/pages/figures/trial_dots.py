"""What figures of trials as dots share: the dots, the axis of operations, and the names of the trials that a
reader looks for, which are the best network, its parent and the seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike, NDArray

from analysis.pages.figures.picture import COLOURS, RASTERISED, Frame, Key, round_text, round_ticks
from analysis.readings.trial_rows import TrialRow

BEST, PARENT, SEED = "best", "its parent", "seed"
RING, BESIDE, ASIDE = 6.0, 14.0, 9.0
"""Half of the width of a ring, and how far a name is above or to the side of its dot, in points."""
LETTER = 0.55
"""Mean width of a letter, in sizes of its font."""
ABOVE_FIRST = ((0, 1), (1, 1), (-1, 1), (0, -1), (1, 0), (-1, 0), (1, -1), (-1, -1))
"""Places of a name as steps to the right and up, the one that is tried first at the beginning."""
BELOW_FIRST = tuple((across, -up) for across, up in ABOVE_FIRST)
TRIALS_SHOWN = 2_000
"""Most trials in a figure of all trials, and in the table of trials: more cannot be told apart."""


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
    """Rings the dots of the named trials that have a place, and writes their names where none covers another:
    that of the best below its dot if there is room, the others above. To be called once the limits of the
    axes are set. Where no place is free, the first one is taken."""
    found = [(name, places[number]) for number, name in names.items() if number in places]
    if not found:
        return
    # In pixels, where overlaps are looked for; the limits of the axes must not change afterwards.
    dots = axes.transData.transform([place for _, place in found])
    taken = [Bbox.from_bounds(x - RING, y - RING, 2 * RING, 2 * RING) for x, y in dots]
    within = axes.get_window_extent()
    for (name, (x, y)), dot in zip(found, dots):
        axes.plot([x], [y], "o", mfc="none", mec=COLOURS["ink"], mew=1.4, ms=11, zorder=4, clip_on=False)
        boxes = [
            (_label_box(dot, name, across, up, frame), across, up)
            for across, up in (BELOW_FIRST if name.startswith(BEST) else ABOVE_FIRST)
        ]
        free = [
            one
            for one in boxes
            if within.x0 <= one[0].x0 and one[0].x1 <= within.x1 and not one[0].count_overlaps(taken)
        ]
        box, across, up = (free or boxes)[0]
        taken.append(box)
        axes.annotate(
            name,
            (x, y),
            xytext=(ASIDE * across, BESIDE * up),
            textcoords="offset points",
            ha=("right", "center", "left")[across + 1],
            va="center",
            color=COLOURS["ink"],
            fontsize=frame.font_size,
            bbox={"boxstyle": "round,pad=0.15", "fc": COLOURS["paper"], "ec": "none", "alpha": 0.8},
            zorder=5,
            in_layout=False,
        )


def _label_box(dot: Sequence[float], name: str, across: int, up: int, frame: Frame) -> Bbox:
    """Where a name would be written, about: its width is not known before it is drawn."""
    width, height = LETTER * len(name) * frame.font_size, 1.2 * frame.font_size
    left = dot[0] + ASIDE * across + width * (across - 1) / 2
    return Bbox.from_bounds(left, dot[1] + BESIDE * up - height / 2, width, height)


def named_key(names: Mapping[int, str]) -> list[Key]:
    """The legend's entry of the rings."""
    return [Key("ink", "the best network, its parent and the seed", "ring")] if names else []
