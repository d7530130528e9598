"""The page of a run that goes on: it asks for its own inside again and again.

It shows what a person who waits asks: does it work, how good is it so far, how long will it take, and does a
group hang. Figures of the score are preliminary, because credit comes with validations, and say so. After the
end `report` shows more.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aiperf.journal.axis import SpanAxis
from aiperf.journal.replay import Replay
from aiperf.wording import clock, figure, percent, rate
from analysis.pages.figures.picture import (
    Drawing,
    Frame,
    Picture,
    bin_clock,
    canvas,
    clock_axis,
    pointed,
    stamped,
    zero_place,
)
from analysis.pages.figures.progress import ERROR_LEGEND, draw_errors, draw_rates
from analysis.pages.page import drawn, page
from analysis.readings.live import Snapshot
from analysis.readings.score_figures import COUNT, ERROR, RATE, SECONDS, Figure
from analysis.table import Cell, Table

GROUPS_SHOWN = 1_024
"""Most groups in the table: a page of more is too long to read, and to send every few seconds."""


def live_html(now: Snapshot, replay: Replay, seconds: float) -> str:
    """`seconds`: after so long the page asks again. A page of many groups takes longer to make, and asks less
    often. `replay` is the run so far, and `now` what was read from it."""
    return page(
        "live.html",
        now.mark,
        live=True,
        now=now,
        seconds=seconds,
        key=_key(now),
        drawn=[drawn(stamped(picture, now.mark)) for picture in (_curve(now), _errors(now, replay))],
        groups=_groups(now),
    )


def _key(now: Snapshot) -> Sequence[Figure]:
    """The figures that are read first. A run that has ended has its sustained OPS, and no time left. The mark
    of a run that is not measured is on each figure."""
    trials = ", ".join(f"{num:,} {name.lower()}" for name, num in sorted(now.trials.items()))
    best, told = (None, "no trial was validated")
    if now.best is not None:
        best, told = now.best[1], f"on validation, best ended trial {now.best[0]}"
    span = clock(now.span_seconds)
    credited = "Training with a validation in time, and these validations; idle time is included."
    first = Figure("OPS so far", now.ops_per_second, RATE, f"over {span}", help=credited)
    found = [
        first if now.verdict is None else replace(first, name="sustained OPS"),
        Figure("best error", best, ERROR, told, "none"),
        Figure("trials", sum(now.trials.values()), COUNT, trials or "none"),
    ]
    if now.verdict is None:
        found.append(Figure("time left", now.left_seconds, SECONDS, f"{span} of the span have passed"))
    return [replace(one, mark=now.mark) for one in found]


def _curve(now: Snapshot) -> Picture:
    """Operations per second by bin of all steps, credited or not, because credit comes with a later
    validation."""
    edges = np.arange(len(now.curve) + 1, dtype=np.float64) * now.bin_seconds
    rates = np.array(now.curve, np.float64)

    def draw(frame: Frame) -> Drawing:
        figure_, (axes,) = canvas(frame, 220 if frame.narrow else 260)
        clock_axis(axes, now.span_seconds, frame)
        return draw_rates(figure_, axes, edges, rates)

    cells: list[list[Cell]] = [
        [(bin_clock(end, now.bin_seconds), end), (rate(value), value)]
        for end, value in zip(edges[1:].tolist(), rates.tolist())
    ]
    table = Table.of(("until", "OPS"), cells, (True, True))
    return Picture(
        name="curve",
        title="Operations per second",
        says="All steps that were run; credit follows with the validations.",
        draw=draw,
        table=table,
        labels=[f"until {end}\n{value}" for end, value in table.rows],
        empty=not cells,
        near_in_both=False,
    )


def _errors(now: Snapshot, replay: Replay) -> Picture:
    """The error of every trial that has ended, and the lowest so far. Times are seconds of the span, without
    pauses between legs."""
    axis = SpanAxis(replay.legs)
    told = [
        (axis.at(attempt.leg, attempt.ended), attempt.error, attempt.trial.number)
        for attempt in replay.arrivals
        if attempt.ended is not None and attempt.error is not None
    ]
    zero = zero_place([error for _, error, _ in told])
    times, errors = [time for time, _, _ in told], [max(error, zero or 0.0) for _, error, _ in told]
    best = list(itertools.accumulate(errors, min))

    def draw(frame: Frame) -> Drawing:
        figure_, (axes,) = canvas(frame, 220 if frame.narrow else 260)
        draw_errors(axes, (times, errors), (times, best), now.span_seconds, zero)
        clock_axis(axes, now.span_seconds, frame)
        return pointed(figure_, axes, times, errors)

    says = (
        "No trial has been validated."
        if now.best is None
        else f"Best of the trials that have ended: {percent(now.best[1])}."
    )
    return Picture(
        name="errors",
        title="Validation error",
        says=says,
        draw=draw,
        legend=ERROR_LEGEND,
        labels=[f"Trial {trial}\n{percent(error)} at {clock(time)}" for time, error, trial in told],
        empty=not told,
    )


def _groups(now: Snapshot) -> Table:
    """One row per group: what it does, and how far its trial is."""
    cells: list[list[Cell]] = []
    for group in now.groups[:GROUPS_SHOWN]:
        # Epochs, not steps: the plan of a trial is in epochs, and they compare between batch sizes.
        done = None if group.trial is None else group.share * group.epochs
        trial = "" if group.trial is None else str(group.trial)
        epoch = "" if done is None else f"{done:.1f} / {group.epochs}", done
        error = "" if group.error is None else percent(group.error), group.error
        rate = group.per_second
        speed = "" if rate is None else figure(rate), rate
        cells.append([str(group.group), group.host, group.doing, trial, epoch, error, speed, group.origin])
    columns = ("group", "host", "doing", "trial", "epoch", "error", f"{now.rates_of}/s", "origin")
    return Table.of(columns, cells, (True, False, False, *[True] * 4, False))
