"""Operations per second over the span."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from aiperf.score.score import Score
from aiperf.wording import clock, duration, percent, rate, rates
from analysis.pages.figures.picture import Drawing, Key, Marks, Picture, marks_of
from analysis.pages.figures.style import BESIDE, COLOURS, Frame, canvas, clock_axis, scaled_axis
from analysis.readings.disturbance import OthersOverTime
from analysis.table import Table


def throughput(score: Score, others: OthersOverTime | None = None) -> Picture:
    """Credited operations by bin, with the sustained rate and the stable window; below them `others`, the
    share of the hosts' CPU time that other programs used, if it was measured."""
    line = score.timeline
    edges = np.minimum(np.arange(len(line.ops_per_second) + 1) * line.bin_seconds, score.span_seconds)
    rates = np.array(line.ops_per_second)

    def draw(frame: Frame) -> Drawing:
        height = 220 if frame.narrow else 280
        if others is None:
            figure, (axes,) = canvas(frame, height)
        else:
            figure, (axes, below) = canvas(
                frame, height + 90, rows=2, gridspec_kw={"height_ratios": [height, 90]}
            )
            _draw_others(below, others, frame)
        if line.stable_from_seconds is not None and line.stable_to_seconds is not None:
            axes.axvspan(
                line.stable_from_seconds, line.stable_to_seconds, color=COLOURS["sky"], alpha=0.14, lw=0
            )
        axes.stairs(rates, edges, color=COLOURS["blue"], lw=1.6, baseline=None)
        axes.axhline(score.ops_per_second, color=COLOURS["amber"], lw=1.2, dashes=(5, 3))
        axes.set_ylim(0, 1.12 * max(rates.max(initial=0.0), score.ops_per_second, 1e-9))
        clock_axis(axes if others is None else below, max(score.span_seconds, 1e-9), frame)
        scaled_axis(axes, "OPS")
        middle = (edges[1:] + edges[:-1]) / 2
        return Drawing(figure, lambda: Marks(marks_of(axes, middle, middle, rates), range(len(rates))))

    keys = [[float(begin), float(end), float(value)] for begin, end, value in zip(edges, edges[1:], rates)]
    rows = [[clock(begin), clock(end), rate(value)] for begin, end, value in keys]
    legend = [
        Key("blue", f"credited, in bins of {duration(line.bin_seconds)}", "line"),
        Key("amber", "sustained OPS", "dashed"),
    ]
    if line.stable_from_seconds is not None:
        legend.append(Key("sky", "stable window: at least 95 % of the groups working"))
    if others is not None:
        hosts = "" if others.hosts == 1 else ", on the host where it was most"
        legend.append(Key("plum", f"CPU time that other programs used{hosts}", "line"))
    if others is not None and others.hosts > 1:
        legend.append(Key("soft", "the median of the hosts", "line"))
    return Picture(
        name="throughput",
        title="Operations per second",
        says=_says(score),
        wide=BESIDE,
        draw=draw,
        table=Table(("from", "to", "OPS"), rows, (True, True, True), keys),
        legend=legend,
        near_in_both=False,
        empty=not rows,
        labels=[f"{row[0]} to {row[1]}\n{row[2]}" for row in rows],
    )


def _draw_others(axes: Axes, others: OthersOverTime, frame: Frame) -> None:
    """On an axis that ends at 100 %, so that a small share looks small."""
    if others.hosts > 1:
        axes.stairs(others.median, others.edges, color=COLOURS["soft"], lw=1.2, baseline=None)
    axes.stairs(others.most, others.edges, color=COLOURS["plum"], lw=1.6, baseline=None)
    axes.set_ylim(0, 1.05)
    axes.set_yticks([0, 0.5, 1])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))


def _says(score: Score) -> str:
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
