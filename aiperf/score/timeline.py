"""The work of a run over time: all legs on one axis, in seconds of the span."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.axis import SpanAxis
from aiperf.journal.columns import Pieces
from aiperf.journal.replay import Replay
from aiperf.score.example_counts import Counted
from nas.frozen import frozen
from nas.ops import OPS

Array = NDArray[Any]

LONGEST_BIN_SECONDS = 360.0
BINS_OF_A_SHORT_RUN = 60
"""Length of a bin in seconds, and the number of bins of a run that has less than six hours for so many."""
MOST_BINS = 10_000
"""Maximum number of bins, enough for six weeks of the longest ones; a span of a million years in a hostile
journal must not exhaust the memory."""
STABLE_SHARE = 0.95
"""Fraction of the groups that must be at work in a bin for it to belong to the stable window."""
RESAMPLES = 2000
"""Number of bootstrap samples, of which 50 lie beyond each end of an interval of 95 %."""
LEAST_BINS = 4
"""Minimum number of bins for a confidence interval."""


@frozen
class Timeline:
    """Credited operations per second, bin by bin."""

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


@frozen
class Shares:
    """Use of the time of one group, as fractions of the span."""

    group: int
    train: float
    validate: float
    rest: float


def timeline(replay: Replay, counts: Mapping[int, Counted], credited: Array) -> Timeline:
    """The timeline of a run. `credited` says of each row of `Replay.pieces` whether it counts. The operations
    of a step count at the time at which it ended; the steps of a block are assumed to be equally long."""
    span = replay.span_seconds
    if span <= 0:
        return Timeline(0.0, (), None, None, None, None, None)
    found, axis = replay.pieces(), SpanAxis(replay.legs)
    ends = found.end + axis.offsets[found.leg]
    operations = _operations(replay, found, counts, credited)
    width = max(min(LONGEST_BIN_SECONDS, span / BINS_OF_A_SHORT_RUN), span / MOST_BINS)
    num_bins = int(np.ceil(span / width - 1e-9))
    widths = np.full(num_bins, width)
    widths[-1] = span - width * (num_bins - 1)
    rates = _deposited(found, ends, operations, width, num_bins) / widths
    whole = num_bins if widths[-1] > 0.999 * width else num_bins - 1
    first, last = _longest(_busy(replay, found, ends, width, num_bins)[:whole])
    stable = rates[first:last]
    mean = float(rates[:whole].mean()) if whole else 0.0
    return Timeline(
        bin_seconds=width,
        ops_per_second=tuple(rates.tolist()),
        variation=float(rates[:whole].std() / mean) if mean > 0 else None,
        stable_from_seconds=first * width if len(stable) else None,
        stable_to_seconds=last * width if len(stable) else None,
        stable_ops_per_second=float(stable.mean()) if len(stable) else None,
        stable_interval=interval_of_mean(stable) if len(stable) >= LEAST_BINS else None,
    )


def shares(replay: Replay) -> tuple[Shares, ...]:
    """The use of time of each group, over the spans of the legs that had this group."""
    found = replay.pieces()
    released = np.array([leg.released or 0.0 for leg in replay.legs])[found.leg]
    end = np.array([leg.end for leg in replay.legs])[found.leg]
    inside = np.minimum(found.end, end) - np.maximum(found.end - found.seconds, released)
    inside = np.maximum(0.0, inside)
    num_groups = max((leg.groups for leg in replay.legs), default=0)
    train = np.bincount(found.group, inside * ~found.is_validation, num_groups)
    validate = np.bincount(found.group, inside * found.is_validation, num_groups)
    shares = []
    for group in range(num_groups):
        span = sum(leg.span_seconds for leg in replay.legs if group < leg.groups)
        if span > 0:
            trained, validated = float(train[group]) / span, float(validate[group]) / span
            shares.append(Shares(group, trained, validated, 1 - trained - validated))
    return tuple(shares)


def interval_of_mean(rates: Array) -> tuple[float, float]:
    """95 % confidence interval of the mean, by a moving-block bootstrap. It is the same on every machine."""
    num = len(rates)
    block = max(1, round(num ** (1 / 3)))
    blocks = -(-num // block)
    starts = drawn(num - block + 1, RESAMPLES * blocks).reshape(RESAMPLES, blocks, 1)
    places = (starts + np.arange(block)).reshape(RESAMPLES, -1)[:, :num]
    means = np.sort(rates[places].mean(axis=1))
    return _quantile(means, 0.025), _quantile(means, 0.975)


def drawn(below: int, num: int) -> Array:
    """This many whole numbers from 0 to `below` − 1: those of `numpy.random.RandomState(0).randint(below)`,
    whose stream is frozen (NEP 19). The same words come from the Mersenne Twister of the standard library,
    with the state that numpy makes of the seed 0 (`init_genrand`), since importing `numpy.random` takes a
    thirtieth of the time of `score`."""
    state = [0]
    for place in range(1, 624):
        state.append((1_812_433_253 * (state[-1] ^ state[-1] >> 30) + place) % (1 << 32))
    twister = random.Random()
    twister.setstate((3, (*state, 624), None))
    mask = (1 << (below - 1).bit_length()) - 1
    found = np.empty(0, np.int64)
    while len(found) < num:  # a word whose masked bits are too large is skipped
        words = np.frombuffer(twister.randbytes(4 * num), "<u4") & mask
        found = np.append(found, words[words < below])
    return found[:num]


def _quantile(ordered: Array, share: float) -> float:
    """The value of `np.quantile`, to its last bit. It interpolates between two values too, but imports
    `numpy.ma`, which takes a thirtieth of the time of `score`."""
    place = share * (len(ordered) - 1)
    part, (low, high) = place % 1, ordered[int(place) : int(place) + 2]
    return float(low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part))


def _operations(replay: Replay, found: Pieces, counts: Mapping[int, Counted], credited: Array) -> Array:
    """Operations of each piece of work; 0 if it is not credited, or its architecture is not counted."""
    prices = np.zeros((2, len(replay.attempts)))
    for attempt in replay.attempts:
        counted = counts.get(attempt.trial.number)
        if counted is not None:
            prices[:, attempt.index] = counted.train_price(OPS), counted.evaluate.price(OPS)
    price = prices[found.is_validation.astype(np.int64), found.attempt]
    operations: Array = price * found.examples * credited
    return operations


def _deposited(found: Pieces, ends: Array, operations: Array, width: float, num_bins: int) -> Array:
    """Operations by the bin in which their step ended.

    The journal has one row for a block of many steps. Most blocks lie inside one bin and are added with one
    `bincount`. Only a block that crosses the edge of a bin is split, into one row for each bin that it
    touches, by how many of its steps ended there. No loop runs over blocks: a long run has millions.
    """
    steps = np.maximum(found.steps, 1)
    starts, step_seconds = ends - found.seconds, found.seconds / steps
    first, last = _bin(starts + step_seconds, width, num_bins), _bin(ends, width, num_bins)
    whole = first >= last
    total = np.bincount(last[whole], weights=operations[whole], minlength=num_bins)
    (apart,) = np.nonzero(~whole)
    piece = np.repeat(apart, (last - first + 1)[apart])
    bins = _ranges(first[apart], last[apart])
    done = _steps_before((bins + 1) * width, starts[piece], step_seconds[piece], steps[piece])
    done[bins == last[piece]] = steps[piece][bins == last[piece]]
    before = np.where(bins == first[piece], 0, np.roll(done, 1))
    parts = (done - before) / steps[piece] * operations[piece]
    deposited: Array = total + np.bincount(bins, weights=parts, minlength=num_bins)
    return deposited


def _ranges(first: Array, last: Array) -> Array:
    """first[0] … last[0], first[1] … last[1], and so on: the bins of every split block in one array.

    `places` counts 0, 1, 2, … within each block: a running count, minus the count at which the block begins.
    """
    sizes = last - first + 1
    places = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    ranges: Array = np.repeat(first, sizes) + places
    return ranges


def _steps_before(moment: Array, start: Array, step_seconds: Array, steps: Array) -> Array:
    """How many of the steps ended before a moment. A step that ends exactly then belongs to the next bin, as
    it does in `_bin`, so `ceil - 1` and not `floor`."""
    before: Array = np.clip(np.ceil((moment - start) / step_seconds) - 1, 0, steps).astype(np.int64)
    return before


def _bin(times: Array, width: float, num_bins: int) -> Array:
    """The bin of each time. Times are clipped, because those of a bad journal may lie outside the span, and
    must not index outside the bins."""
    bins: Array = np.clip(times / width, 0, num_bins - 1).astype(np.int64)
    return bins


def _busy(replay: Replay, found: Pieces, ends: Array, width: float, num_bins: int) -> Array:
    """For each bin, whether enough groups were at work in it.

    Each piece of work adds 1 where it begins and −1 after the bin where it ends, so the running sum is the
    number of pieces in progress, and its cost does not grow with how many bins a piece covers. The groups
    that should be at work are those of the leg at the middle of the bin: a resumed run may have fewer.
    """
    num_groups = max(leg.groups for leg in replay.legs)
    edges = np.zeros((num_groups, num_bins + 1), dtype=np.int64)
    np.add.at(edges, (found.group, _bin(ends - found.seconds, width, num_bins)), 1)
    np.add.at(edges, (found.group, _bin(ends, width, num_bins) + 1), -1)
    at_work = (np.cumsum(edges, axis=1)[:, :num_bins] > 0).sum(axis=0)
    middles = (np.arange(num_bins) + 0.5) * width
    legs = np.searchsorted(SpanAxis(replay.legs).begins, middles, side="right") - 1
    there = np.array([leg.groups for leg in replay.legs])[legs]
    busy: Array = at_work >= STABLE_SHARE * there
    return busy


def _longest(flags: Array) -> tuple[int, int]:
    """The first and the end of the longest run of true flags; of equals the first."""
    best, start = (0, 0), 0
    for place, flag in enumerate([*flags.tolist(), False]):
        if not flag:
            if place - start > best[1] - best[0]:
                best = (start, place)
            start = place + 1
    return best
