"""How far a run had come at each time: its best error and its regulated score."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.axis import SpanAxis
from aiperf.journal.replay import Replay
from aiperf.score.score import Score, regulated
from analysis.readings.hosts import nodes_of
from nas.frozen import frozen

_NONE = np.zeros(0, dtype=np.int64)


@frozen
class Progress:
    """Times are seconds of the span."""

    ended: NDArray[np.float64]
    """End of each trial that ended with a validation, in the order of their arrival."""
    errors: NDArray[np.float64]
    """Lowest validation error of each of these trials."""
    best_from: NDArray[np.float64]
    """Times at which the best error fell."""
    best: NDArray[np.float64]
    """The best error from each of these times on."""
    best_trials: Sequence[int]
    bin_ends: NDArray[np.float64]
    regulated: NDArray[np.float64]
    """At the end of each bin: −ln(best validation error so far) · credited operations so far / time so far.
    Not a number before the first trial ended."""


@frozen
class Fall:
    """A validation that found a lower error than all before it."""

    seconds: float
    """Time of the validation, in seconds of the span."""
    error: float
    trial: int
    node_hours: float
    """Node-hours of all nodes of the run, busy or not, from the release until then."""
    epochs: float | None
    """Passes over the training examples that all networks of the search had made by then; None where the
    number of training examples is not known."""


def falls(replay: Replay) -> list[Fall]:
    """The falls of the best validation error, in the order of time. They are taken from the validations
    themselves, because `progress` knows an error only when its trial has ended, and only from trials whose
    network may be the best one."""
    axis = SpanAxis(replay.legs)
    closed = replay.validations
    seen = sorted(
        (axis.at(attempt.leg, row.end), closed.tallies[place].error, attempt.trial.number)
        for attempt in replay.attempts
        if attempt.chosen_from
        for place in attempt.chosen_among
        if (row := closed.row(place)).in_time
    )
    found: list[Fall] = []
    epochs = epochs_until(replay)
    for seconds, error, trial in seen:
        if not found or error < found[-1].error:
            found.append(Fall(seconds, error, trial, node_hours(replay, seconds), epochs(seconds)))
    return found


def epochs_until(replay: Replay) -> Callable[[float], float | None]:
    """A function of a second of the span: the epochs of training that validations had closed by then."""
    closed = replay.validations
    legs = np.array([attempt.leg.index for attempt in replay.attempts], dtype=np.int64)
    ends = SpanAxis(replay.legs).of(legs[closed.column("attempt")], closed.column("end"))
    order = np.argsort(ends)
    ends, done = ends[order], np.concatenate([[0], np.cumsum(closed.column("train_examples")[order])])
    examples = replay.manifest.get("training_examples")

    def epochs(seconds: float) -> float | None:
        return float(done[np.searchsorted(ends, seconds, side="right")]) / examples if examples else None

    return epochs


def node_hours(replay: Replay, until: float = math.inf) -> float:
    """Nodes times hours of the span, up to `until` seconds of it."""
    axis, total = SpanAxis(replay.legs), 0.0
    for leg in replay.legs:
        begin, end = float(axis.begins[leg.index]), float(axis.ends[leg.index])
        total += len(nodes_of(leg)) * max(0.0, min(end, until) - begin) / 3600
    return total


def progress(replay: Replay, score: Score) -> Progress:
    """What was known at each time, as a reader of the journal would have seen it."""
    axis = SpanAxis(replay.legs)
    told = [
        (axis.at(attempt.leg, attempt.ended), attempt.error, attempt.trial.number)
        for attempt in replay.arrivals
        if attempt.chosen_from and attempt.error is not None and attempt.ended is not None
    ]
    ended = np.array([time for time, _, _ in told])
    errors = np.array([error for _, error, _ in told])
    lowest = np.minimum.accumulate(errors) if len(errors) else errors
    better = np.flatnonzero(np.concatenate([[True], lowest[1:] < lowest[:-1]])) if len(errors) else _NONE
    rates = np.array(score.timeline.ops_per_second)
    widths = np.full(len(rates), score.timeline.bin_seconds)
    if len(rates):
        widths[-1] = score.span_seconds - score.timeline.bin_seconds * (len(rates) - 1)
    ends = np.cumsum(widths)
    sofar = np.cumsum(rates * widths) / np.maximum(ends, 1e-9)
    # The error that counts if no validation example was wrong.
    closed = replay.validations
    floor = closed.tallies[closed.by_attempt[0]].floor if len(closed) else 0.5
    scores = [
        regulated(max(error, floor), rate) if error == error else np.nan
        for error, rate in zip(_best_by(ends, ended, lowest), sofar)
    ]
    return Progress(
        ended=ended,
        errors=errors,
        best_from=ended[better],
        best=lowest[better],
        best_trials=[told[place][2] for place in better.tolist()],
        bin_ends=ends,
        regulated=np.array(scores),
    )


def _best_by(
    times: NDArray[np.float64], ended: NDArray[np.float64], lowest: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The lowest error known at each time. Arrivals are sorted first, because they may be reported a little
    out of order."""
    order = np.argsort(ended, kind="stable")
    places = np.searchsorted(ended[order], times, side="right")
    best = np.minimum.accumulate(lowest[order]) if len(order) else lowest
    return np.array([best[place - 1] if place else np.nan for place in places])
