"""Asynchronous successive halving: which trials are trained on, without waiting for a rung to be full.

Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Container

FACTOR = 3
"""One in this number of trials of a rung is trained on to the next rung."""


class Halving:
    """The rungs of a run: a group that is free goes on with a trial of one of them, or begins a new one."""

    def __init__(self, num_rungs: int) -> None:
        self._rungs: list[list[tuple[float, int, int]]] = [[] for _ in range(num_rungs)]
        self._promoted: dict[int, int] = {}  # who goes on with it
        self._rung: dict[int, int] = {}
        self._arrivals = 0

    def rung_after(self, parent: int) -> int:
        """Rung of a trial that goes on with `parent`."""
        return self._rung[parent] + 1

    def dispatched(self, number: int, promoted: int | None) -> None:
        """A trial began: a new one, or one that goes on with `promoted`."""
        self._rung[number] = 0 if promoted is None else self.rung_after(promoted)
        if promoted is not None:
            self._promoted[promoted] = number

    def stopped(self, number: int) -> None:
        """A trial was stopped by the end of a leg, which says nothing about it: another may go on with the
        same one."""
        self._promoted = {old: by for old, by in self._promoted.items() if by != number}

    def tell(self, number: int, error: float) -> None:
        """A trial completed its rung. Raises ValueError for an error that is not a number."""
        if not 0 <= error < math.inf:
            raise ValueError(f"trial {number} has the error {error}; it must be a number from 0 up")
        insort(self._rungs[self._rung[number]], (error, self._arrivals, number))
        self._arrivals += 1  # of equal errors the first stays the better one: a replay finds the same order

    def promotion(self, kept: Container[int]) -> int | None:
        """The trial to go on with: of the highest rung that has one, the best that is not promoted yet.

        Only trials whose weights are `kept` can go on; the others keep their place in the rung. The share is
        of those that have arrived: some go on that a full rung would have left behind, but nobody waits. From
        the highest rung down, so that a trial is not held up by those below that come after it.
        """
        for rung in reversed(self._rungs[:-1]):
            for _, _, number in rung[: len(rung) // FACTOR]:
                if number not in self._promoted and number in kept:
                    return number
        return None
