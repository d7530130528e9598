"""How fast each group worked, made comparable: no two trials are of one architecture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.attempts import Leg
from aiperf.journal.axis import SpanAxis
from aiperf.journal.replay import Replay
from analysis.readings.robust import LEAST_NUMBER, below, deviation, median
from nas.frozen import frozen

TRIALS_A_COEFFICIENT = 4
"""A fit of many coefficients to few trials follows each trial, also that of a slow group, which then looks
normal. So the fit gets one coefficient for every four trials."""
LEAST_AMOUNT, MOST_AMOUNT = 1e-6, 1e9
"""Range of the seconds, steps and examples of a block; blocks outside are left out. A journal may hold any
number, and outside this range a logarithm or a quotient could overflow."""
DRIFT_SECONDS = 15.0
"""A quarter of the shortest window that is looked through (`outliers.WINDOW_SECONDS`): what slows all groups
for a part of a window is taken away where it happened."""
PROPORTIONAL = 1e-12
"""Share of the largest singular value below which one counts as 0: the parts of all blocks are proportional
then, as where all trials are of one architecture, and no fit can tell their prices apart."""
LEAST_BLOCKS = 4
"""Fewest blocks of a trial before a time that its later blocks are compared with."""

Array = NDArray[np.float64]


@frozen
class BlockTimes:
    """Blocks of steps of a leg: how long each took, relative to what the work of all groups lets expect."""

    ends: Array
    """In seconds of the span."""
    groups: NDArray[np.int64]
    attempts: NDArray[np.int64]
    slowness: Array
    """Logarithm of the seconds over those expected."""
    scatter: float
    """Robust standard deviation of it between trials: what a trial's own shape does to it."""

    @classmethod
    def of(cls, replay: Replay, leg: Leg) -> BlockTimes | None:
        """None where there is too little to compare.

        The first block of each trial is left out, because it also holds what happens once: choosing kernels,
        filling caches. What slows all groups at the same time is taken away (`_drift`): it is a property of
        the machine, not of a group.
        """
        if leg.groups < LEAST_NUMBER or not len(replay.blocks):
            return None
        column, operations = replay.blocks.column, _operations(replay)
        legs = np.array([attempt.leg.index for attempt in replay.attempts], dtype=np.int64)
        rows = legs[column("attempts")] == leg.index
        for name in ("seconds", "steps", "examples"):
            rows &= (column(name) > LEAST_AMOUNT) & (column(name) < MOST_AMOUNT)
        rows &= operations.sum(axis=1)[column("attempts")] > 0
        rows[np.unique(column("attempts"), return_index=True)[1]] = False
        if rows.sum() < LEAST_NUMBER:
            return None
        attempts = column("attempts")[rows]
        expected = _expected(
            operations, attempts, column("steps")[rows], column("examples")[rows], column("seconds")[rows]
        )
        slowness = np.log(column("seconds")[rows] / expected)
        ends = SpanAxis(replay.legs).of(legs[attempts], column("ends")[rows])
        groups = np.array([attempt.group for attempt in replay.attempts], dtype=np.int64)[attempts]
        slowness -= _drift(ends, groups, slowness)
        _, by_trial = _medians(attempts, slowness)
        return cls(
            ends=ends, groups=groups, attempts=attempts, slowness=slowness, scatter=deviation(by_trial)
        )

    def below(self, begin: float, end: float) -> Iterator[tuple[int, float]]:
        """Groups that are slow between two times, each with its share of the median rate."""
        first, last = np.searchsorted(self.ends, [begin, end], side="right", sorter=self._by_end)
        inside = np.sort(self._by_end[first:last])
        if not len(inside):
            return
        of_group = dict(zip(np.unique(self.groups[inside]).tolist(), _parted(self.groups[inside], inside)))
        found = dict(self._slower_than_others(of_group))
        for group, share in self._slower_than_before(of_group, begin):
            found[group] = min(share, found.get(group, share))
        yield from found.items()

    def _slower_than_others(self, of_group: Mapping[int, NDArray[np.int64]]) -> Iterator[tuple[int, float]]:
        """Against the time that the fit expects of their work.

        The fit does not know everything about an architecture, so one trial's slowness is uncertain by
        `scatter`. What n trials say of a group is uncertain by `scatter` / √n: a group with few
        trials in the window must be slower than one with many before it is named.
        """
        rows = np.concatenate(list(of_group.values()))
        groups, medians = _medians(self.groups[rows], self.slowness[rows])
        speeds = dict(zip(groups.tolist(), -medians))
        # Each attempt once, with its group: a loop over the groups would take long in hundreds of windows.
        of_attempts = self.groups[rows[np.unique(self.attempts[rows], return_index=True)[1]]]
        trials = np.unique(of_attempts, return_counts=True)[1]
        yield from _named(speeds, self.scatter / np.sqrt(np.maximum(trials, 1)))

    def _slower_than_before(
        self, of_group: Mapping[int, NDArray[np.int64]], begin: float
    ) -> Iterator[tuple[int, float]]:
        """Against the same trial before the window. The architecture is the same, so the fit and its
        uncertainty play no part, and a smaller change can be seen."""
        changes, own = dict[int, Any](), list[float]()
        for group, rows in of_group.items():
            first = self._rows[int(self.attempts[rows[0]])]  # of the trial that ran when the time began
            earlier = self.slowness[first[self.ends[first] <= begin]]
            if len(earlier) >= LEAST_BLOCKS:
                now = self.slowness[rows[self.attempts[rows] == self.attempts[rows[0]]]]
                changes[group] = median(earlier) - median(now)
                own.append(deviation(earlier))
        yield from _named(changes, np.array(own))

    @cached_property
    def _by_end(self) -> NDArray[np.int64]:
        """Rows in the order of their ends: a long run is looked at through hundreds of windows."""
        return np.argsort(self.ends, kind="stable")

    @cached_property
    def _rows(self) -> Mapping[int, NDArray[np.int64]]:
        """Rows of each attempt, by its index."""
        parts = _parted(self.attempts, np.arange(len(self.attempts)))
        return dict(zip(np.unique(self.attempts).tolist(), parts))


def _named(speeds: Mapping[int, Any], own: Array) -> Iterator[tuple[int, float]]:
    """Groups whose logarithm of a rate lies too low, with the share of the median rate."""
    values, groups = np.array(list(speeds.values()), dtype=np.float64), list(speeds)
    for index in below(values, own):
        yield groups[index], float(np.exp(values[index] - np.median(values)))


def _expected(
    operations: Array, attempts: NDArray[np.int64], steps: Array, examples: Array, seconds: Array
) -> Array:
    """Seconds of each block, as a sum of its multiply-accumulates, its steps and its other operations, each
    at one price for all groups.

    The prices are those with the least sum of relative errors. Relative, because a block of a large network
    must not count for more than one of a small network. Not squared, because squares give most weight to
    the largest errors: the fit would move towards a slow group and hide it. With few trials the last parts
    are left out (TRIALS_A_COEFFICIENT). Each part is divided by its median first, so that prices of very
    different size can be solved for together.
    """
    kinds = operations[attempts]
    macs, others = kinds[:, 0] * examples, kinds[:, 1:].sum(axis=1) * examples
    number = len(np.unique(attempts)) // TRIALS_A_COEFFICIENT
    parts = np.stack([2 * macs + others, steps.astype(np.float64), others], axis=1)[
        :, : max(1, min(3, number))
    ]
    relative = parts / seconds[:, None]
    scale = np.median(relative, axis=0)
    scale[scale <= 0] = 1.0
    prices = _least_absolute(relative / scale)
    expected: Array = np.maximum((parts / scale) @ prices, 1e-300)
    return expected


def _drift(ends: Array, groups: NDArray[np.int64], slowness: Array) -> Array:
    """What slowed all groups at the time of each block, as the file system or the network may.

    Time is cut into pieces of DRIFT_SECONDS. In each piece first the median of every group is taken, then the
    median over the groups: so a group with many blocks has one vote like the others, and a group that is
    slow alone does not move the result. Between the middles of the pieces it changes on a straight line.
    """
    pieces = np.floor(ends / DRIFT_SECONDS).astype(np.int64)
    number = int(groups.max()) + 1
    places, medians = _medians(pieces * number + groups, slowness)
    pieces, common = _medians(places // number, medians, least=LEAST_NUMBER)
    times = (pieces + 0.5) * DRIFT_SECONDS
    return np.interp(ends, times, common) if len(times) else np.zeros_like(slowness)


def _operations(replay: Replay) -> Array:
    """Operations of one training example, forward and backward, by attempt and kind."""
    passes = [(attempt.dispatched.forward, attempt.dispatched.backward) for attempt in replay.attempts]
    kinds: Array = np.array(passes, dtype=np.float64).sum(axis=1)
    return np.clip(kinds, 0.0, 1e18)


def _parted(keys: NDArray[np.int64], values: NDArray[Any]) -> list[NDArray[Any]]:
    """The values of each key, in the order of the keys. One sort, where a selection for every key would read
    all rows again for each."""
    order = np.argsort(keys, kind="stable")
    borders = [0, *(np.nonzero(np.diff(keys[order]))[0] + 1).tolist(), len(keys)]
    values = values[order]
    return [values[first:end] for first, end in pairwise(borders)]  # `np.split` takes ten times as long


def _medians(keys: NDArray[np.int64], values: Array, least: int = 1) -> tuple[NDArray[np.int64], Array]:
    """The keys that have at least `least` values, in their order, and the median of each.

    The rows are sorted by key, then by value, so the values of a key are neighbours and its median stands in
    their middle. A loop over the keys with `np.median` would be slow for a long run.
    """
    order = np.lexsort((values, keys))
    keys, values = keys[order], values[order]
    first = np.nonzero(np.diff(keys, prepend=keys[:1] - 1))[0]
    number = np.diff(first, append=len(keys))
    enough = number >= least
    first, number = first[enough], number[enough]
    return keys[first], (values[first + (number - 1) // 2] + values[first + number // 2]) / 2


def _least_absolute(parts: Array) -> Array:
    """Prices, none negative, with the least sum of |parts · prices − 1|.

    Such a sum has no closed form, but a sum of squares has. So least squares are solved again and again, each
    row weighted by 1 / its last error: weight × error² is then the error itself ("iteratively reweighted
    least squares"). The floor of 1e-3 keeps the weight of a row that fits perfectly finite. Work cannot take
    negative time: a part whose price comes out negative is dropped, and the rest is fitted again.

    The squares are solved by their normal equations, three at most, since a long run has millions of rows.
    """
    chosen = list(range(parts.shape[1]))
    while True:
        prices = np.zeros(parts.shape[1])
        weights = np.ones(len(parts))
        for _ in range(30):
            weighed = parts[:, chosen].T * weights
            prices[chosen] = np.linalg.lstsq(weighed @ parts[:, chosen], weighed.sum(axis=1), PROPORTIONAL)[0]
            weights = 1 / np.maximum(np.abs(parts @ prices - 1), 1e-3)
        negative = [index for index in chosen if prices[index] < 0]
        if not negative or len(chosen) == 1:
            return np.maximum(prices, 0.0)
        chosen = [index for index in chosen if index not in negative] or [0]
