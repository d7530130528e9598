"""The course of a run over its span: operations per second, error and regulated score.

All have the same axis of time, the seconds of the span, in which a pause between two legs does not count. A
rate is drawn in steps, because it is the mean of a bin; an error in steps, because it holds until the next
trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from aiperf.score.score import Score
from aiperf.wording import clock, duration, percent, rate, rates
from analysis.pages.figures.picture import (
    BESIDE,
    COLOURS,
    RASTERISED,
    Drawing,
    Frame,
    Key,
    Picture,
    bin_clock,
    canvas,
    clock_axis,
    error_axis,
    pointed,
    rate_axis,
    zero_place,
)
from analysis.readings.disturbance import OthersOverTime
from analysis.readings.progress import Progress
from analysis.table import Cell, Table

Floats = NDArray[np.float64] | Sequence[float]
"""A column of numbers."""
ERROR_LEGEND = (Key("blue", "best so far", "line"), Key("soft", "a trial, when it ended", "dot"))
"""What `draw_errors` draws."""


def throughput(score: Score, others: OthersOverTime | None = None) -> Picture:
    """Credited operations by bin, with the sustained rate and the stable window; below them `others`, the
    share of the hosts' CPU time that other programs used, if it was measured. The last bin may be shorter
    than the others; its rate is still per second."""
    line = score.timeline
    edges = np.minimum(np.arange(len(line.ops_per_second) + 1) * line.bin_seconds, score.span_seconds)
    rates = np.array(line.ops_per_second)

    def draw(frame: Frame) -> Drawing:
        """The rates; if others were measured, below them on the same axis of time, where a dip of one finds
        its cause in the other."""
        height = 220 if frame.narrow else 280
        if others is None:
            figure, (axes,) = canvas(frame, height)
        else:
            ratios = {"height_ratios": [height, 90]}
            figure, (axes, below) = canvas(frame, height + 90, rows=2, gridspec_kw=ratios)
            _draw_others(below, others)
        if line.stable_from_seconds is not None and line.stable_to_seconds is not None:
            stable = line.stable_from_seconds, line.stable_to_seconds
            axes.axvspan(*stable, color=COLOURS["sky"], alpha=0.14, lw=0)
        axes.axhline(score.ops_per_second, color=COLOURS["amber"], lw=1.2, dashes=(5, 3))
        clock_axis(axes if others is None else below, score.span_seconds, frame)
        return draw_rates(figure, axes, edges, rates, score.ops_per_second)

    cells: list[list[Cell]] = [
        [
            (bin_clock(begin, line.bin_seconds), begin),
            (bin_clock(end, line.bin_seconds), end),
            (rate(value), value),
        ]
        for begin, end, value in zip(edges.tolist(), edges[1:].tolist(), line.ops_per_second)
    ]
    table = Table.of(("from", "to", "OPS"), cells, (True, True, True))
    return Picture(
        name="throughput",
        title="Operations per second",
        says=_throughput_text(score),
        wide=BESIDE,
        draw=draw,
        table=table,
        legend=_throughput_legend(score, others),
        near_in_both=False,
        empty=not cells,
        labels=[f"{begin} to {end}\n{value}" for begin, end, value in table.rows],
    )


def draw_rates(
    figure: Figure, axes: Axes, edges: NDArray[np.float64], rates: NDArray[np.float64], least: float = 0.0
) -> Drawing:
    """Draws rates by bin as steps, on an axis that shows `least`, too; a pointer finds the bins. `edges` are
    in seconds of the span, one more than `rates`, which are in OPS."""
    # Without a baseline, so that a bin of 0 is seen as a line on the axis.
    axes.stairs(rates, edges, color=COLOURS["blue"], lw=1.6, baseline=None)
    rate_axis(axes, [*rates, least])
    return pointed(figure, axes, (edges[1:] + edges[:-1]) / 2, rates)


def _draw_others(axes: Axes, others: OthersOverTime) -> None:
    """Draws on an axis that ends at 100 %, so that a small share looks small."""
    if others.hosts > 1:
        axes.stairs(others.median, others.edges, color=COLOURS["soft"], lw=1.2, baseline=None)
    axes.stairs(others.most, others.edges, color=COLOURS["plum"], lw=1.6, baseline=None)
    axes.set_ylim(0, 1.05)
    axes.set_yticks([0, 0.5, 1])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))


def _throughput_legend(score: Score, others: OthersOverTime | None) -> list[Key]:
    """Entries for the lines that are drawn; those of other programs only if they were measured."""
    legend = [
        Key("blue", f"credited, in bins of {duration(score.timeline.bin_seconds)}", "line"),
        Key("amber", "sustained OPS", "dashed"),
    ]
    if score.timeline.stable_from_seconds is not None:
        legend.append(Key("sky", "stable window: at least 95 % of the groups working"))
    if others is not None:
        hosts = "" if others.hosts == 1 else ", on the host where it was most"
        legend.append(Key("plum", f"CPU time that other programs used{hosts}", "line"))
        if others.hosts > 1:
            legend.append(Key("soft", "the median of the hosts", "line"))
    return legend


def _throughput_text(score: Score) -> str:
    """The sustained rate, the range of the bins, and the stable window with its 95 % interval."""
    line = score.timeline
    if not line.ops_per_second:
        return "There is no span yet."
    low, high = min(line.ops_per_second), max(line.ops_per_second)
    text = (
        f"{rate(score.ops_per_second)} sustained over {clock(score.span_seconds)}; "
        f"bins from {rates(low, high)}"
    )
    if line.variation is not None:
        text += f", coefficient of variation {percent(line.variation, 1)}"
    if line.stable_interval is not None and line.stable_from_seconds is not None:
        text += (
            f". Stable from {clock(line.stable_from_seconds)} to {clock(line.stable_to_seconds or 0)} at "
            f"{rate(line.stable_ops_per_second or 0)}, 95 % interval {rates(*line.stable_interval)}"
        )
    return text + "."


def error_over_time(found: Progress, score: Score) -> Picture:
    """Every validated trial, and the best so far. Times are seconds of the span; in the table, only falls of
    the best error."""
    zero = zero_place(found.errors)
    errors, best = (np.maximum(each, zero or 0.0) for each in (found.errors, found.best))

    def draw(frame: Frame) -> Drawing:
        figure, (axes,) = canvas(frame, 220 if frame.narrow else 280)
        dots, falls = (found.ended, errors), (found.best_from, best)
        # What lies on the border is seen whole.
        draw_errors(axes, dots, falls, score.span_seconds, zero, clip_on=False, in_layout=False)
        clock_axis(axes, score.span_seconds, frame)
        return pointed(figure, axes, found.best_from, best, found.best_trials)

    cells: list[list[Cell]] = [
        [(clock(time), float(time)), (str(trial), trial), (percent(error), float(error))]
        for time, trial, error in zip(found.best_from, found.best_trials, found.best)
    ]
    table = Table.of(("time", "trial", "validation error"), cells, (True, True, True))
    says = "No trial has been validated."
    if cells:
        (begin, _, first), (end, trial, last), falls = table.rows[0], table.rows[-1], len(cells) - 1
        steps = f"fell in {falls} step{'' if falls == 1 else 's'} from {first} at {begin} to {last}"
        says = f"The best validation error {steps if falls else f'is {last}'} at {end} (trial {trial})."
    return Picture(
        name="error",
        title="Best validation error",
        says=says,
        draw=draw,
        table=table,
        legend=ERROR_LEGEND,
        near_in_both=False,
        empty=not cells,
    )


def draw_errors(
    axes: Axes,
    dots: tuple[Floats, Floats],
    best: tuple[Floats, Floats],
    end_seconds: float,
    zero: float | None,
    **layout: Any,
) -> None:
    """Draws times and errors of trials as dots, and those of the best ones as steps up to the end of the
    span. `zero`: where an error of 0 is drawn. `layout`: how the dots take part in the layout."""
    is_image = len(dots[0]) > RASTERISED
    axes.plot(*dots, "o", color=COLOURS["soft"], ms=4.6, mew=0, alpha=0.75, rasterized=is_image, **layout)
    times, errors = best
    if len(times):
        steps = [*times, end_seconds], [*errors, errors[-1]]
        axes.step(*steps, where="post", color=COLOURS["blue"], lw=1.8)
    error_axis(axes, zero)  # last, since the limits follow what is drawn


def regulated_over_time(found: Progress, score: Score) -> Picture:
    """The regulated score as it would have been if the run had ended at each time. It is computed
    by the validation error, because a test is made once, at the end."""

    def draw(frame: Frame) -> Drawing:
        figure, (axes,) = canvas(frame, 200 if frame.narrow else 240)
        # NaN before the first validation.
        there = np.nonzero(~np.isnan(found.regulated))[0]
        shape = "o-" if len(there) == 1 else "-"  # no line goes through one point
        x, y = found.bin_ends, found.regulated
        axes.plot(x, y, shape, color=COLOURS["blue"], lw=1.8, ms=5, clip_on=False, in_layout=False)
        clock_axis(axes, score.span_seconds, frame)
        rate_axis(axes, found.regulated)
        return pointed(figure, axes, found.bin_ends[there], found.regulated[there], there.tolist())

    known = [float(value) for value in found.regulated if value == value]  # NaN before the first validation
    cells: list[list[Cell]] = [
        [
            (bin_clock(float(end), score.timeline.bin_seconds), float(end)),
            (rate(value), float(value)) if value == value else "none",
        ]
        for end, value in zip(found.bin_ends, found.regulated)
    ]
    table = Table.of(("at", "regulated score, by validation"), cells, (True, True))
    says = "No trial has been validated."
    if known:
        says = f"By the validation error it was {rate(known[-1])} at the end."
        if score.regulated_score is not None:
            says += f" The run's regulated score, by the test error, is {rate(score.regulated_score)}."
    return Picture(
        name="regulated",
        title="Regulated score",
        says=says,
        draw=draw,
        table=table,
        near_in_both=False,
        empty=not known,
        labels=["\n".join(row) for row in table.rows],
    )
