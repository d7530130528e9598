"""The best error of several runs over time and over money.

The same steps over two quantities: nodes are paid for whether they work or wait, so money is time multiplied
by nodes and price. Runs that differ only in their random seed show by their distance how much of a time is
luck.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from aiperf.wording import clock, counted, figure, percent, plain
from analysis.comparing.cost import CostStudy, RunCost
from analysis.pages.figures.picture import (
    COLOURS,
    Drawing,
    Frame,
    Key,
    Picture,
    canvas,
    clock_axis,
    error_axis,
    pointed,
    stamped,
    zero_place,
)
from analysis.readings.progress import Fall
from analysis.table import Cell, Table
from nas.frozen import frozen

RUN_COLOURS = ("blue", "amber", "green", "plum", "red", "sky")
"""Colours of the runs in turn; if there are more runs, all are blue, and a pointer shows which is which."""


@frozen
class _Scale:
    """The quantity along the lower edge."""

    name: str
    title: str
    at: Callable[[Fall], float]
    """The quantity at a fall of the best error."""
    end: Callable[[RunCost], float]
    """The quantity at the end of a run, to which its line is drawn."""
    text: Callable[[float], str]
    axis: Callable[[Axes, float, Frame], None]
    """Sets the lower axis, from 0 to the given end."""


def cost_pictures(found: CostStudy) -> list[Picture]:
    """Figures of the best error over time and, with a price, over money. The mark of runs that were not
    measured is stamped on each."""
    scales = [
        _Scale(
            "over-time",
            "Best error over time",
            lambda fall: fall.seconds,
            lambda run: run.whole.seconds,
            clock,
            clock_axis,
        )
    ]
    if found.price is not None:
        price = found.price
        scales.append(
            _Scale(
                "over-money",
                "Best error over money",
                lambda fall: price.money(fall.node_hours),
                lambda run: run.whole.money or 0.0,
                lambda value: f"{figure(value)} {price.currency}".rstrip(),
                _money_axis(price.unit),
            )
        )
    return [stamped(_over(found, scale), found.mark) for scale in scales]


def _over(found: CostStudy, scale: _Scale) -> Picture:
    """The best error of each run over one quantity. A dot marks where the error was reached; it is filled if
    the test confirmed it. An error of 0 has a place of its own, because the axis is logarithmic."""
    drawn = [(run, colour) for run, colour in zip(found.runs, _colours(len(found.runs))) if run.falls]
    points = [(run, fall) for run, _ in drawn for fall in run.falls]
    zero = zero_place([fall.error for _, fall in points])

    def draw(frame: Frame) -> Drawing:
        canvas_, (axes,) = canvas(frame, 240 if frame.narrow else 320)
        for run, colour in drawn:
            times = [scale.at(fall) for fall in run.falls]
            # A line goes on to the end of its run: a short line is a short run, not one that stopped
            # improving.
            errors = [max(fall.error, zero or 0.0) for fall in run.falls]
            ends, last = [*times, scale.end(run)], [*errors, errors[-1]]
            axes.step(ends, last, where="post", color=COLOURS[colour], lw=1.6)
            if run.first is not None:
                axes.plot(
                    [scale.at(run.first)],
                    [max(run.first.error, zero or 0.0)],
                    "o",
                    ms=7,
                    color=COLOURS[colour] if run.is_reached else COLOURS["paper"],
                    mec=COLOURS[colour],
                    mew=1.6,
                    clip_on=False,
                    in_layout=False,
                )
        axes.axhline(found.error, color=COLOURS["soft"], lw=1.0, dashes=(5, 3))
        error_axis(axes, zero)
        scale.axis(axes, max([scale.end(run) for run in found.runs] + [1e-9]), frame)
        times, errors = (
            [scale.at(fall) for _, fall in points],
            [max(fall.error, zero or 0.0) for _, fall in points],
        )
        return pointed(canvas_, axes, times, errors)

    cells: list[list[Cell]] = [
        [
            (plain(run.run), run.run),
            (scale.text(scale.at(fall)), scale.at(fall)),
            (percent(fall.error), fall.error),
            (str(fall.trial), float(fall.trial)),
        ]
        for run, fall in points
    ]
    table = Table.of(("run", "at", "best validation error", "trial"), cells, (False, True, True, True))
    return Picture(
        name=scale.name,
        title=scale.title,
        says=_says(found, scale),
        draw=draw,
        table=table,
        legend=_legend(found, drawn),
        labels=[f"{run}\n{error} at {time}\ntrial {trial}" for run, time, error, trial in table.rows],
        empty=not points,
    )


def _legend(found: CostStudy, drawn: Sequence[tuple[RunCost, str]]) -> list[Key]:
    """An entry for each run while there are enough colours, otherwise one for all; then the error that was
    asked for."""
    several = len(drawn) <= len(RUN_COLOURS)
    lines = [Key(colour, plain(run.run), "line") for run, colour in drawn] if several else []
    lines = lines or [Key("blue", f"best validation error of each of {len(drawn)} runs", "line")]
    asked = f"the requested error, {found.error_text}; a filled dot if the test agrees"
    return [*lines, Key("soft", asked, "dashed")]


def _says(found: CostStudy, scale: _Scale) -> str:
    """In how many runs the error was reached, and between which two values of the quantity."""
    if not any(run.falls for run in found.runs):
        return "No trial has been validated."
    asked, num = found.error_text, len(found.runs)
    first = [(scale.at(run.first), run) for run in found.reached if run.first is not None]
    if not first:
        return f"An error of {asked} was not reached in any of {counted(num, 'run')}."
    low, high = (scale.text(end(first, key=lambda one: one[0])[0]) for end in (min, max))
    between = f"at {low}" if low == high else f"between {low} and {high}"
    whose = "" if num == 1 else f" in {len(first)} of {num} runs"
    return f"An error of {asked} was reached{whose} {between}."


def _colours(num: int) -> Sequence[str]:
    """A colour per run, as long as there are enough that can be told apart."""
    return RUN_COLOURS if num <= len(RUN_COLOURS) else ["blue"] * num


def _money_axis(unit: str) -> Callable[[Axes, float, Frame], None]:
    """A function that sets an axis of amounts, with the unit as its label."""

    def drawn(axes: Axes, end: float, frame: Frame) -> None:
        axes.set_xlim(0, end)
        axes.locator_params(axis="x", nbins=4 if frame.narrow else 9)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: figure(value) if value else "0"))
        axes.set_xlabel(unit)

    return drawn
