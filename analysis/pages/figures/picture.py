"""A figure before it is drawn, the result of drawing it, and how every figure looks.

Each figure is drawn at two widths, for a desk and for a telephone, and a style sheet chooses. The hues hold
for colour-blind readers, by day and by night: they are those of Okabe and Ito, "Color Universal Design",
2008, somewhat muted. In a page each colour becomes a variable of its style sheet; in a file it is what is
written here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, Locator, MaxNLocator, NullLocator
from numpy.typing import ArrayLike, NDArray

from aiperf.journal.mark import Mark, marked
from aiperf.wording import clock, scaled
from analysis.table import Table
from nas.frozen import frozen

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
"""ink writes, soft is for what is less important, faint for grids, paper is the ground; the others are
hues."""
POINTS_PER_INCH = 72
"""Resolution at which a unit of a drawing is one point, and in a page one pixel."""
MOST_EVEN = 6
"""Most ticks at even distances on a logarithmic axis: further ones would overlap where it is dense."""
LEAST_TICKS = 3
"""Ticks below which an axis cannot be read as a scale."""
ALL_ZERO = 1e-4
"""Where an error of 0 is drawn if there is no other error; any place would do."""
ABOVE_ZERO = 1.5
"""A tick above that of 0 is at least this many times as high: half of the distance between 1 and 2."""
STAMP_LETTER = 0.62
"""Half of the mean width of a letter of a stamp, in sizes of the figure's font: it is 1.7 times as large,
bold and in capitals."""
STAMP_SHADE = 0.3
"""Opacity of a stamp: read at a glance, and the figure below it is read all the same."""
MOST_ERROR = 1.15
"""Top of an axis of errors, of which none is above 1: there is room for a name above a dot."""
RASTERISED = 4_000
"""More dots than this are drawn as an image, which keeps the page small."""
CLOCK_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400)
"""Distances in seconds of the ticks of an axis of time: what people count in, up to a day."""


@frozen
class Frame:
    """A width to draw for, in units that are pixels where the page is at least so wide."""

    name: str
    """Class of its SVG element, by which the style sheet shows it."""
    width: int
    font_size: float

    @property
    def narrow(self) -> bool:
        """Whether it is so narrow that there is no room for texts at the sides."""
        return self.width < 600


WIDE, NARROW = Frame("wide", 1040, 12.5), Frame("narrow", 360, 11.0)
"""The widths at which every figure is drawn: of a column on a desk, and of a telephone."""
BESIDE = Frame("wide", 720, 12.5)
"""As WIDE, for a figure with a column of figures next to it."""


@frozen
class Key:
    """An entry of a figure's legend; the page writes it, so that it wraps and can be read aloud."""

    colour: str
    """A name in COLOURS."""
    text: str
    shape: str = "square"
    """square, line, dashed, points (a line with dots), dot, ring, diamond, cross or hatch."""


@frozen
class Marks:
    """Where a pointer finds something, in the units of the drawing, from its upper left corner."""

    place: NDArray[np.float64]
    """Rows of left, right, height: a point has left = right."""
    names: Sequence[int]
    """What each is: the number of a trial, or the place of a text in `Picture.labels`."""


@frozen
class Drawing:
    """A figure that was drawn at one width."""

    figure: Figure
    marks: Callable[[], Marks] | None = None
    """Called after the figure was written, because only then its layout is known."""


@frozen
class Picture:
    """A figure with its drawing, its text and its table."""

    name: str
    """Name of its file and of its anchor."""
    title: str
    says: str
    """The text alternative: what a reader would see, in a sentence or two with the figures that matter."""
    draw: Callable[[Frame], Drawing]
    """Draws it at a width; called once for each."""
    table: Table | None = None
    legend: Sequence[Key] = ()
    labels: Sequence[str] | None = None
    """Texts of the marks; None where the marks are trials."""
    near_in_both: bool = True
    """Whether a pointer must be near in height too; in a line over time it need not."""
    empty: bool = False
    """Whether there is nothing to draw, so that only its words are shown."""
    wide: Frame = WIDE
    """The width that a page of a screen has for it."""
    lineage: bool = False
    """Whether the ancestors of the trial that is pointed at are to be joined by a line."""
    covers: bool = False
    """Whether it covers its ground with bars, so that a stamp must lie above them; it lies below
    lines and dots, which it would make hard to read."""


def pointed(
    figure: Figure,
    axes: Axes,
    left: ArrayLike,
    height: ArrayLike,
    names: Sequence[int] | None = None,
    right: ArrayLike | None = None,
) -> Drawing:
    """A drawing with one mark per place, in the coordinates of the data.

    `names`: as in `Marks`; None: the marks are labelled in their order. `right`: the other end of marks that
    are not points. `left` and `height` have one number per mark.
    """
    ends = left if right is None else right

    def marks() -> Marks:
        place = _placed(axes, left, ends, height)
        return Marks(place, range(len(place)) if names is None else names)

    return Drawing(figure, marks)


def _placed(axes: Axes, left: ArrayLike, right: ArrayLike, height: ArrayLike) -> NDArray[np.float64]:
    """Places of marks, from the coordinates of the data to those of the drawing."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    top = figure.get_figheight() * figure.dpi
    if not np.size(left):
        return np.zeros((0, 3))
    first = axes.transData.transform(np.column_stack([left, height]))
    second = axes.transData.transform(np.column_stack([right, height]))
    return np.column_stack([first[:, 0], second[:, 0], top - first[:, 1]])


def stamped(picture: Picture, mark: Mark | None) -> Picture:
    """The picture with the mark in its title, in its words and all over its drawing: what is cut out of a
    page, or saved alone, says what it is. A picture of a measured run is returned as it is."""
    if mark is None:
        return picture

    def draw(frame: Frame) -> Drawing:
        drawing = picture.draw(frame)
        _stamp(drawing.figure, mark.word.upper(), frame, not picture.covers)
        return drawing

    says = f"{mark.word.capitalize()}. {picture.says}"
    return replace(picture, title=marked(picture.title, mark), says=says, draw=draw)


def _stamp(figure: Figure, word: str, frame: Frame, behind: bool) -> None:
    """Writes the word all over the figure, so that no part that tells something lacks it."""
    wide, high = (160, 90) if frame.narrow else (260, 110)
    columns = max(2, round(figure.get_figwidth() * POINTS_PER_INCH / wide))
    rows = max(2, round(figure.get_figheight() * POINTS_PER_INCH / high))
    half = STAMP_LETTER * len(word) * frame.font_size / (figure.get_figwidth() * POINTS_PER_INCH)
    left, right = (0.2 if frame.narrow else 0.1) + half, 1 - half  # clear of the figures at the left
    places = itertools.product(range(rows), range(columns))
    for row, column in places:  # every other row a little aside
        across = (column + (0.5 if row % 2 else 0.0)) / (columns - 0.5)
        figure.text(
            left + (right - left) * across,
            0.08 + 0.92 * (row + 0.5) / rows,  # and of those below
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


@contextmanager
def styled(salt: str = "") -> Iterator[None]:
    """matplotlib's settings, for drawing as for writing; `salt` sets the names inside an SVG apart."""
    with mpl.rc_context(_settings(salt)):
        yield


def _settings(salt: str) -> Any:
    """The settings of matplotlib that hold for every figure."""
    return {
        "svg.fonttype": "none",  # text stays text, which a reader can select and a browser can scale
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
    """A figure of this height with `rows` axes above one another, sharing their x: no box, no ticks, a faint
    grid across. `height` is in points, `layout` goes to `Figure.subplots`."""
    figure = Figure(
        figsize=(frame.width / POINTS_PER_INCH, height / POINTS_PER_INCH),
        dpi=POINTS_PER_INCH,
        layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.03, hspace=0.06, wspace=0.04),
    )
    every = list(figure.subplots(rows, 1, sharex=True, squeeze=False, **layout)[:, 0])
    for axes in every:
        axes.tick_params(length=0, labelsize=frame.font_size, pad=5)
        axes.tick_params(axis="x", pad=9)  # clear of the lowest label next to it
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        axes.xaxis.label.set_fontsize(frame.font_size)
        axes.yaxis.label.set_fontsize(frame.font_size)
    for axes in every[:-1]:
        axes.xaxis.set_visible(False)  # it says nothing, and would be laid out all the same
    return figure, every


class RoundTicks(Locator):
    """Ticks of a logarithmic axis at 1, 2 and 5 times the powers of ten.

    Where these are more than `most`, only the powers of ten; where they are fewer than three, because the
    axis spans little, at the numbers between them as well, or at even distances. `zero`: where a value of 0
    is drawn; it has a tick of its own, and none is below it or so near that the two would be read as one.
    """

    def __init__(self, most: int, zero: float | None = None) -> None:
        """`most` is the largest number of ticks without that of 0."""
        self.most = most
        self.zero = zero

    def __call__(self) -> list[float]:
        """The ticks for the axis as it is now; matplotlib calls it when it draws."""
        assert self.axis is not None
        ticks = self.tick_values(*self.axis.get_view_interval())
        if self.zero is None:
            return ticks
        return [self.zero, *(tick for tick in ticks if tick > ABOVE_ZERO * self.zero)]

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        """The ticks between two ends of the axis, as matplotlib asks for them."""
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
        # If there are still more than `most`, every second, third … one.
        return kept[:: math.ceil(len(kept) / self.most)] if kept else kept


def round_ticks(axis: Axis, most: int, zero: float | None = None) -> None:
    """Sets an axis that is logarithmic to ticks at round numbers and to no others. `zero`: as in
    `RoundTicks`."""
    axis.set_major_locator(RoundTicks(most, zero))
    axis.set_minor_locator(NullLocator())


def round_text(value: float, unit: str) -> str:
    """A round number with an SI prefix and its unit, without zeros that say nothing: "20 MOP". Three digits
    are kept."""
    number, space, rest = scaled(value, unit, 3).partition(" ")
    return (number.rstrip("0").rstrip(".") if "." in number else number) + space + rest


def clock_axis(axes: Axes, span_seconds: float, frame: Frame) -> None:
    """Sets the axis of time from 0 to the end of the span, with ticks at round minutes or hours."""
    span = max(span_seconds, 1e-9)  # an axis must have a length, also before the span has begun
    axes.set_xlim(0, span)
    most = 4 if frame.narrow else 9
    step = next((step for step in CLOCK_STEPS if span / step <= most), span / most)
    axes.set_xticks([step * i for i in range(int(span / step + 0.01) + 1)])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: clock(value)))


def bin_clock(seconds: float, bin_seconds: float) -> str:
    """An edge of a bin as a time, to the tenth of a second if two edges would else be shown alike."""
    return clock(seconds) if bin_seconds >= 1 else f"{seconds:.1f} s"


def rate_axis(axes: Axes, rates: ArrayLike) -> None:
    """Sets the axis of rates from 0 to a little above the highest of these, in OPS with an SI prefix."""
    axes.set_ylim(0, 1.12 * max(np.nanmax(rates, initial=0.0), 1e-9))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: round_text(value, "OPS") if value else "0"))


def error_axis(axes: Axes, zero: float | None = None) -> None:
    """Errors on a logarithmic axis, ticked at 1, 2 and 5 times each power of ten. `zero`: where an error of 0
    is drawn, as `zero_place` says; None if there is none. Errors are shares from 0 to 1, shown as per
    cent."""
    axes.set_yscale("log")
    round_ticks(axes.yaxis, 12, zero)
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: "0 %" if value == zero else f"{100 * value:g} %")
    )


def zero_place(errors: ArrayLike) -> float | None:
    """Where an error of 0 is drawn, which has no place on a logarithmic axis: at half of the lowest other
    one. None if none of these errors is 0."""
    found = np.asarray(errors, np.float64)
    above = found[found > 0]
    if len(above) == len(found):
        return None
    return float(above.min()) / 2 if len(above) else ALL_ZERO
