"""When the work of a run was done: all legs on one axis, in seconds of the span."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.credit import Credit
from aiperf.lineage import Counted
from aiperf.replay import Replay
from nas.ops import OPS

__all__ = ["Pieces", "Shares", "Timeline", "shares", "timeline"]

Floats = NDArray[np.float64]

LONGEST_BIN_SECONDS = 360.0
BINS_OF_A_SHORT_RUN = 60
STABLE_SHARE = 0.95
"""Of the groups at work: the window is stable."""
RESAMPLES = 2000
LEAST_BINS = 4
"""Fewer give no interval."""


@dataclass(frozen=True)
class Pieces:
    """Pieces of work in columns: blocks of steps, and validations. Seconds on the axis of the span."""

    group: NDArray[np.int64]
    end: Floats
    seconds: Floats
    steps: NDArray[np.int64]
    operations: Floats
    """Credited."""
    leg: NDArray[np.int64]
    validation: NDArray[np.bool_]


@dataclass(frozen=True)
class Timeline:
    """Credited operations a second, bin by bin."""

    bin_seconds: float
    ops_per_second: tuple[float, ...]
    """The last bin may be shorter; its rate is over its own length."""
    variation: float | None
    """Coefficient of variation of the whole bins: standard deviation / mean."""
    stable_from_seconds: float | None
    """The longest window in which at least 95 % of the groups were at work in every bin."""
    stable_to_seconds: float | None
    stable_ops_per_second: float | None
    stable_interval: tuple[float, float] | None
    """95 %, by a moving-block bootstrap of the bins (Künsch, Annals of Statistics 17(3), 1989)."""


@dataclass(frozen=True)
class Shares:
    """Where the time of one group went, as shares of the span."""

    group: int
    train: float
    validate: float
    rest: float


def timeline(replay: Replay, counts: Mapping[int, Counted], credit: Credit) -> Timeline:
    """Each step's operations lie at the time that step ended; steps of a block are equally long."""
    span = replay.span_seconds
    if span <= 0:
        return Timeline(0.0, (), None, None, None, None, None)
    pieces = _pieces(replay, counts, credit)
    width = min(LONGEST_BIN_SECONDS, span / BINS_OF_A_SHORT_RUN)
    num_bins = int(np.ceil(span / width - 1e-9))
    widths = np.full(num_bins, width)
    widths[-1] = span - width * (num_bins - 1)
    rates = _deposited(pieces, width, num_bins) / widths
    whole = num_bins if widths[-1] > 0.999 * width else num_bins - 1
    first, last = _longest(_busy(replay, pieces, width, num_bins)[:whole])
    stable = rates[first:last]
    mean = float(rates[:whole].mean()) if whole else 0.0
    return Timeline(
        bin_seconds=width,
        ops_per_second=tuple(rates.tolist()),
        variation=float(rates[:whole].std() / mean) if mean > 0 else None,
        stable_from_seconds=first * width if len(stable) else None,
        stable_to_seconds=last * width if len(stable) else None,
        stable_ops_per_second=float(stable.mean()) if len(stable) else None,
        stable_interval=_interval(stable) if len(stable) >= LEAST_BINS else None,
    )


def shares(replay: Replay) -> tuple[Shares, ...]:
    """For each group, over the spans of the legs in which there was such a group."""
    pieces = _pieces(replay, {}, None)
    num_groups = max((leg.groups for leg in replay.legs), default=0)
    starts, stops = _leg_bounds(replay)
    from_ = np.maximum(pieces.end - pieces.seconds, starts[pieces.leg])
    inside = np.maximum(0.0, np.minimum(pieces.end, stops[pieces.leg]) - from_)
    found = []
    for group in range(num_groups):
        span = sum(leg.span_seconds for leg in replay.legs if group < leg.groups)
        mine = pieces.group == group
        if span > 0:
            train = float(inside[mine & ~pieces.validation].sum()) / span
            validate = float(inside[mine & pieces.validation].sum()) / span
            found.append(Shares(group, train, validate, 1 - train - validate))
    return tuple(found)


def _pieces(replay: Replay, counts: Mapping[int, Counted], credit: Credit | None) -> Pieces:
    """Blocks first, then validations. Operations are 0 for what is not credited or not counted."""
    column = replay.blocks.column
    attempts = column("attempts")
    groups = np.array([attempt.group for attempt in replay.attempts], dtype=np.int64)
    legs = np.array([attempt.leg.index for attempt in replay.attempts], dtype=np.int64)
    prices = [
        counts[a.trial.number].train.price(OPS) if a.trial.number in counts else 0 for a in replay.attempts
    ]
    operations = np.array(prices, dtype=np.float64)[attempts] * column("images")
    if credit is not None:
        operations = operations * credit.blocks
    closed = [(a, v) for a in replay.attempts for v in a.validations]
    evaluated = [
        counts[a.trial.number].evaluate.price(OPS) * v.segment.of
        if a.trial.number in counts and (credit is None or credit.has(a, v))
        else 0
        for a, v in closed
    ]
    leg = np.concatenate([legs[attempts], np.array([a.leg.index for a, _ in closed], dtype=np.int64)])
    offsets, _ = _offsets(replay)
    ends = np.concatenate([column("ends"), np.array([v.end for _, v in closed], dtype=np.float64)])
    return Pieces(
        group=np.concatenate([groups[attempts], np.array([a.group for a, _ in closed], dtype=np.int64)]),
        end=ends + offsets[leg],
        seconds=_joined(column("seconds"), [v.segment.validate_seconds for _, v in closed]),
        # A validation reads its images in batches too; the training batch stands for their size.
        steps=np.concatenate(
            [
                column("steps"),
                np.array([-(-v.segment.of // a.trial.hyper.batch_size) for a, v in closed], dtype=np.int64),
            ]
        ),
        operations=_joined(operations, evaluated),
        leg=leg,
        validation=np.arange(len(ends)) >= len(attempts),
    )


def _joined(column: NDArray[Any], values: list[Any]) -> Floats:
    return np.concatenate([column, np.array(values, dtype=np.float64)])


def _offsets(replay: Replay) -> tuple[Floats, Floats]:
    """What to add to a leg's clock to stand on the axis of the span, and where each leg begins there."""
    spans = np.array([leg.span_seconds for leg in replay.legs], dtype=np.float64)
    begins = np.concatenate([[0.0], np.cumsum(spans)])[:-1]
    released = np.array([leg.released or 0.0 for leg in replay.legs], dtype=np.float64)
    return begins - released, begins


def _leg_bounds(replay: Replay) -> tuple[Floats, Floats]:
    _, begins = _offsets(replay)
    return begins, begins + np.array([leg.span_seconds for leg in replay.legs], dtype=np.float64)


def _deposited(pieces: Pieces, width: float, num_bins: int) -> Floats:
    """Operations by the bin in which their step ended."""
    steps = np.maximum(pieces.steps, 1)
    duration = pieces.seconds / steps
    first = _bin(pieces.end - pieces.seconds + duration, width, num_bins)
    last = _bin(pieces.end, width, num_bins)
    whole = first == last
    total = np.bincount(last[whole], weights=pieces.operations[whole], minlength=num_bins)
    (apart,) = np.nonzero(~whole)  # few: they lie across the edge of a bin
    each = np.repeat(apart, steps[apart])
    before_end = np.concatenate([np.arange(num - 1, -1, -1) for num in steps[apart]]) if len(apart) else each
    times = pieces.end[each] - before_end * duration[each]
    total = total + np.bincount(
        _bin(times, width, num_bins), weights=(pieces.operations / steps)[each], minlength=num_bins
    )
    return total.astype(np.float64)


def _bin(times: Floats, width: float, num_bins: int) -> NDArray[np.int64]:
    return np.clip((times / width).astype(np.int64), 0, num_bins - 1)


def _busy(replay: Replay, pieces: Pieces, width: float, num_bins: int) -> NDArray[np.bool_]:
    """For each bin, whether enough groups were at work in it."""
    num_groups = max(leg.groups for leg in replay.legs)
    edges = np.zeros((num_groups, num_bins + 1), dtype=np.int64)
    np.add.at(edges, (pieces.group, _bin(pieces.end - pieces.seconds, width, num_bins)), 1)
    np.add.at(edges, (pieces.group, _bin(pieces.end, width, num_bins) + 1), -1)
    at_work = (np.cumsum(edges, axis=1)[:, :num_bins] > 0).sum(axis=0)
    starts, _ = _leg_bounds(replay)
    legs = np.searchsorted(starts, (np.arange(num_bins) + 0.5) * width, side="right") - 1
    there = np.array([leg.groups for leg in replay.legs])[legs]
    busy: NDArray[np.bool_] = at_work >= STABLE_SHARE * there
    return busy


def _longest(flags: NDArray[np.bool_]) -> tuple[int, int]:
    """The first and the end of the longest run of true flags; of equals the first."""
    best, start = (0, 0), 0
    for place, flag in enumerate([*flags.tolist(), False]):
        if not flag:
            if place - start > best[1] - best[0]:
                best = (start, place)
            start = place + 1
    return best


def _interval(rates: Floats) -> tuple[float, float]:
    """Of the mean. The same on every machine: numpy keeps this generator's stream for ever (NEP 19)."""
    num = len(rates)
    block = max(1, round(num ** (1 / 3)))
    random = np.random.RandomState(0)
    starts = random.randint(0, num - block + 1, size=(RESAMPLES, -(-num // block)))
    places = (starts[:, :, None] + np.arange(block)).reshape(RESAMPLES, -1)[:, :num]
    low, high = np.percentile(rates[places].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)
