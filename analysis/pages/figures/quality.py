"""Error and regulated score over the span."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from aiperf.score.score import Score
from aiperf.wording import clock, percent, rate
from analysis.pages.figures.picture import Drawing, Key, Marks, Picture, marks_of
from analysis.pages.figures.style import COLOURS, Frame, canvas, clock_axis, round_ticks, scaled_axis
from analysis.readings.progress import Progress
from analysis.table import Table

MOST_ERROR = 1.15
"""Top of an axis of errors, of which none is above 1: there is room for a name above a dot."""


def error_over_time(found: Progress, score: Score) -> Picture:
    """Every validated trial, and the best so far."""

    def draw(frame: Frame) -> Drawing:
        figure, (axes,) = canvas(frame, 220 if frame.narrow else 280)
        shown = np.maximum(found.errors, _floor(found))
        axes.plot(
            found.ended,
            shown,
            "o",
            color=COLOURS["soft"],
            ms=3.6,
            mew=0,
            alpha=0.75,
            rasterized=len(shown) > 4000,
            clip_on=False,  # what lies on the border is seen whole
            in_layout=False,
        )
        best = np.maximum(found.best, _floor(found))
        if len(best):
            axes.step(
                [*found.best_from, score.span_seconds],
                [*best, best[-1]],
                where="post",
                color=COLOURS["blue"],
                lw=1.8,
            )
        error_axis(axes)
        clock_axis(axes, max(score.span_seconds, 1e-9), frame)
        return Drawing(
            figure, lambda: Marks(marks_of(axes, found.best_from, found.best_from, best), found.best_trials)
        )

    keys = [
        [float(time), trial, float(error)]
        for time, trial, error in zip(found.best_from, found.best_trials, found.best)
    ]
    rows = [[clock(time), str(trial), percent(error)] for time, trial, error in keys]
    says = "No trial has been validated."
    if rows:
        (begin, _, first), (end, trial, last), falls = rows[0], rows[-1], len(rows) - 1
        steps = f"fell in {falls} step{'' if falls == 1 else 's'} from {first} at {begin} to {last}"
        says = f"The best validation error {steps if falls else f'is {last}'} at {end} (trial {trial})."
    return Picture(
        name="error",
        title="Best validation error",
        says=says,
        draw=draw,
        table=Table(("time", "trial", "validation error"), rows, (True, True, True), keys),
        legend=(Key("blue", "best so far", "line"), Key("soft", "a trial", "dot")),
        near_in_both=False,
        empty=not rows,
    )


def regulated_over_time(found: Progress, score: Score) -> Picture:
    """The regulated score as it would have been if the run had ended at each time."""

    def draw(frame: Frame) -> Drawing:
        figure, (axes,) = canvas(frame, 200 if frame.narrow else 240)
        alone = int(np.isfinite(found.regulated).sum()) == 1  # no line goes through one point
        axes.plot(
            found.bin_ends,
            found.regulated,
            "o-" if alone else "-",
            color=COLOURS["blue"],
            lw=1.8,
            ms=5,
            clip_on=False,
            in_layout=False,
        )
        axes.set_ylim(0, 1.12 * max(np.nanmax(found.regulated, initial=0.0), 1e-9))
        clock_axis(axes, max(score.span_seconds, 1e-9), frame)
        scaled_axis(axes, "OPS")
        there = np.nonzero(~np.isnan(found.regulated))[0]
        times, values = found.bin_ends[there], found.regulated[there]
        return Drawing(figure, lambda: Marks(marks_of(axes, times, times, values), there.tolist()))

    keys = [
        [float(end), None if value != value else float(value)]
        for end, value in zip(found.bin_ends, found.regulated)
    ]
    rows = [[clock(end or 0.0), "none" if value is None else rate(value)] for end, value in keys]
    known = [value for value in found.regulated if value == value]
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
        table=Table(("at", "regulated score, by validation"), rows, (True, True), keys),
        near_in_both=False,
        empty=not known,
        labels=[f"{row[0]}\n{row[1]}" for row in rows],
    )


def error_axis(axes: Axes) -> None:
    """Errors on a logarithmic axis, ticked at 1, 2 and 5 times each power of ten."""
    axes.set_yscale("log")
    round_ticks(axes.yaxis, 12)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))


def _floor(found: Progress) -> float:
    """An error of nothing has no place on a logarithmic axis; it is drawn a little below the lowest."""
    above = found.errors[found.errors > 0]
    return float(above.min()) / 2 if len(above) else 1e-4
