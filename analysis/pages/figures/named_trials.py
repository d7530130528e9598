"""The trials that a reader looks for in a figure of dots: the best network, its parent and the seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from analysis.pages.figures.picture import Key
from analysis.pages.figures.style import COLOURS, Frame
from analysis.readings.trial_rows import TrialRow

BEST, PARENT, SEED = "best", "its parent", "seed"


def names_of(path: Sequence[TrialRow]) -> dict[int, str]:
    """By number, of a line of descent from the seed to the best network. A trial that is two of them is named
    for the later."""
    if not path:
        return {}
    found = {path[0].number: SEED}
    if len(path) > 1:
        found[path[-2].number] = PARENT if len(path) > 2 else f"{SEED}, {PARENT}"
    found[path[-1].number] = BEST if len(path) > 1 else f"{BEST}, the {SEED}"
    return found


def name_trials(axes: Axes, places: Mapping[str, Sequence[float]], frame: Frame) -> None:
    """Rings the dots and writes their names: that of the best below its dot, the others above, so that a
    child next to its parent does not cover it. To be called once the limits of the axes are set."""
    for name, (x, y) in places.items():
        axes.plot([x], [y], "o", mfc="none", mec=COLOURS["ink"], mew=1.4, ms=11, zorder=4, clip_on=False)
        across = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))[0]
        side = "left" if across < 0.15 else "right" if across > 0.85 else "center"
        axes.annotate(
            name,
            (x, y),
            xytext=(0, -15 if name.startswith(BEST) else 12),
            textcoords="offset points",
            ha=side,
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
