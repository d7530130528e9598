"""How every figure looks: sizes, lines, and a palette that holds for colour-blind readers, day and night.

The hues are those of Okabe and Ito, "Color Universal Design", 2008, somewhat muted. In a page each
colour becomes a variable of its style sheet; in a file it is what stands here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, Locator, MaxNLocator, NullLocator

from aiperf.wording import clock, scaled

COLOURS: Mapping[str, str] = {
    "ink": "#1c2128",
    "soft": "#5d6672",
    "faint": "#e1e5ea",
    "paper": "#fefefe",
    "blue": "#2b66a5",
    "sky": "#8ab6de",
    "amber": "#d29a1e",
    "red": "#c4472f",
    "plum": "#7a4f8b",
    "green": "#2c8368",
}
POINTS_PER_INCH = 72
MOST_EVEN = 6
LEAST_TICKS = 3
"""Ticks below which an axis cannot be read as a scale."""
STAMP_SHADE = 0.3
"""Read at a glance, and the figure below it is read all the same."""


@dataclass(frozen=True)
class Frame:
    """A width to draw for, in units that are pixels where the page is at least so wide."""

    name: str
    width: int
    font_size: float

    @property
    def narrow(self) -> bool:
        return self.width < 600


WIDE, NARROW = Frame("wide", 1040, 12.5), Frame("narrow", 360, 11.0)
BESIDE = Frame("wide", 720, 12.5)
"""As WIDE, for a figure with a column of figures next to it."""


@contextmanager
def styled(salt: str = "") -> Iterator[None]:
    """matplotlib's settings, for drawing as for writing; `salt` sets the names inside an SVG apart."""
    with mpl.rc_context(_settings(salt)):
        yield


def _settings(salt: str) -> Any:
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "font.family": "DejaVu Sans",
        "text.color": COLOURS["ink"],
        "axes.edgecolor": COLOURS["soft"],
        "axes.labelcolor": COLOURS["soft"],
        "xtick.color": COLOURS["soft"],
        "ytick.color": COLOURS["soft"],
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "axes.linewidth": 0.8,
        "grid.color": COLOURS["faint"],
        "grid.linewidth": 0.8,
        "hatch.color": COLOURS["plum"],
        "hatch.linewidth": 0.8,
        "path.simplify": True,
    }


def canvas(frame: Frame, height: float, rows: int = 1, **layout: Any) -> tuple[Figure, list[Axes]]:
    """A figure of this height with `rows` axes above one another, sharing their x."""
    figure = Figure(
        figsize=(frame.width / POINTS_PER_INCH, height / POINTS_PER_INCH),
        dpi=POINTS_PER_INCH,
        layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.03, hspace=0.06, wspace=0.04),
    )
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False, **layout)[:, 0]
    for one in axes:
        quiet(one, frame)
    for one in axes[:-1]:
        one.xaxis.set_visible(False)  # it says nothing, and would be laid out all the same
    return figure, list(axes)


def stamp(figure: Figure, word: str, frame: Frame, behind: bool = False) -> None:
    """The word again and again over the whole figure: no part that tells something is without. `behind`: what
    is drawn, for a figure of lines and dots, which do not hide it."""
    wide, high = (160, 90) if frame.narrow else (260, 110)
    columns = max(2, round(figure.get_figwidth() * POINTS_PER_INCH / wide))
    rows = max(2, round(figure.get_figheight() * POINTS_PER_INCH / high))
    places = itertools.product(range(rows), range(columns))
    for row, column in places:  # every other row a little aside, and all clear of the figures at the left
        across = (column + (0.75 if row % 2 else 0.25)) / columns
        figure.text(
            0.1 + 0.84 * across,
            (row + 0.5) / rows,
            word,
            ha="center",
            va="center",
            rotation=15,
            color=COLOURS["red"],
            alpha=STAMP_SHADE,
            fontsize=1.7 * frame.font_size,
            fontweight="bold",
            in_layout=False,
            zorder=-1 if behind else 3,
        )


class RoundTicks(Locator):
    """Ticks of a logarithmic axis at 1, 2 and 5 times the powers of ten.

    Where these are more than `most`, only the powers of ten; where they are fewer than three, because the
    axis spans little, at the numbers between them as well, or at even distances.
    """

    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self) -> list[float]:
        assert self.axis is not None
        return self.tick_values(*self.axis.get_view_interval())

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        low, high = sorted((vmin, vmax))
        if low <= 0 or high == low:
            return [high]
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)

        def within(*factors: float) -> list[float]:
            found = [factor * 10.0**power for power in powers for factor in factors]
            return [value for value in found if low <= value <= high]

        kept = within(1, 2, 5)
        if len(kept) > self.most:
            kept = within(1)
        elif len(kept) < LEAST_TICKS:
            kept = within(1, 1.5, 2, 3, 5, 7)
        if len(kept) < LEAST_TICKS:
            even = MaxNLocator(min(self.most, MOST_EVEN), steps=[1, 2, 5, 10], min_n_ticks=LEAST_TICKS)
            kept = [float(value) for value in even.tick_values(low, high) if low <= value <= high]
        return kept[:: math.ceil(len(kept) / self.most)] if kept else kept


def round_ticks(axis: Axis, most: int) -> None:
    """Sets an axis that is logarithmic to ticks at round numbers and to no others."""
    axis.set_major_locator(RoundTicks(most))
    axis.set_minor_locator(NullLocator())


def round_text(value: float, unit: str) -> str:
    """A round number with an SI prefix and its unit, without zeros that say nothing: "20 MOP"."""
    number, space, rest = scaled(value, unit, 3).partition(" ")
    return (number.rstrip("0").rstrip(".") if "." in number else number) + space + rest


def quiet(axes: Axes, frame: Frame) -> None:
    """No box, no ticks, a faint grid across."""
    axes.tick_params(length=0, labelsize=frame.font_size, pad=5)
    axes.tick_params(axis="x", pad=9)  # clear of the lowest label beside it
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.xaxis.label.set_fontsize(frame.font_size)
    axes.yaxis.label.set_fontsize(frame.font_size)


def clock_axis(axes: Axes, span_seconds: float, frame: Frame) -> None:
    """Sets the axis of time from 0 to the end of the span, with ticks at round minutes or hours."""
    axes.set_xlim(0, span_seconds)
    most = 4 if frame.narrow else 9
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400)
    step = next((step for step in steps if span_seconds / step <= most), span_seconds / most)
    axes.set_xticks([step * i for i in range(int(span_seconds / step + 0.01) + 1)])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: clock(value)))


def scaled_axis(axes: Axes, unit: str) -> None:
    """Values with an SI prefix and their unit."""
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: scaled(value, unit, 3) if value else "0"))
