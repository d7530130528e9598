"""All work of a run in columns, because a long run has millions of blocks of steps."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.events import BlockRow


@dataclass(frozen=True)
class Pieces:
    """Columns with one row per piece of work: blocks of steps first, then validations, those of the first
    attempt before those of the second. Times are in seconds on the clock of its leg."""

    attempt: NDArray[np.int64]
    """Index of the attempt among all attempts of the run."""
    segment: NDArray[np.int64]
    group: NDArray[np.int64]
    leg: NDArray[np.int64]
    end: NDArray[np.float64]
    time: NDArray[np.float64]
    """Time of the line."""
    seconds: NDArray[np.float64]
    """Duration of the work."""
    steps: NDArray[np.int64]
    """Number of steps; for a validation, of batches as large as those of the training."""
    examples: NDArray[np.int64]
    num_blocks: int
    """Number of rows at the beginning that are blocks; the rows after them are validations."""
    is_validation: NDArray[np.bool_]


@dataclass(frozen=True)
class Totals:
    """Sums over the blocks of each segment. The place of segment `s` of attempt `a` is `first[a] + s`."""

    first: NDArray[np.int64]
    steps: NDArray[np.int64]
    examples: NDArray[np.int64]
    seconds: NDArray[np.float64]


@dataclass
class Blocks:
    """Columns with one row per `Stepped` line, in the order of the journal."""

    attempts: array[int] = field(default_factory=lambda: array("q"))
    """Index of the attempt among all attempts of the run."""
    segments: array[int] = field(default_factory=lambda: array("q"))
    steps: array[int] = field(default_factory=lambda: array("q"))
    examples: array[int] = field(default_factory=lambda: array("q"))
    seconds: array[float] = field(default_factory=lambda: array("d"))
    ends: array[float] = field(default_factory=lambda: array("d"))
    """Times in seconds of the leg at which the blocks ended."""
    times: array[float] = field(default_factory=lambda: array("d"))
    """Times in seconds of the leg at which the lines were written."""
    finite: array[int] = field(default_factory=lambda: array("b"))
    """Whether the loss was finite: 1 or 0."""

    def append(self, attempt: int, t: float, row: BlockRow) -> None:
        _, _, segment, steps, examples, seconds, loss, end = row
        self.attempts.append(attempt)
        self.segments.append(segment)
        self.steps.append(steps)
        self.examples.append(examples)
        self.seconds.append(seconds)
        self.ends.append(end)
        self.times.append(t)
        self.finite.append(loss is not None)

    def __len__(self) -> int:
        return len(self.attempts)

    def column(self, name: str) -> NDArray[Any]:
        """A copy of a column, which later appends do not change."""
        column: array[Any] = getattr(self, name)
        return np.array(column)

    def totals(self, num_segments: Sequence[int]) -> Totals:
        """Sums over the blocks of each segment. `num_segments` is the number of segments of each attempt,
        open ones included."""
        first = np.concatenate([[0], np.cumsum(num_segments)]).astype(np.int64)
        places = self.places(first)

        def summed(name: str) -> NDArray[Any]:  # exact: doubles hold whole numbers below 2^53
            return np.bincount(places, weights=self.column(name), minlength=int(first[-1]))

        steps, examples = summed("steps").astype(np.int64), summed("examples").astype(np.int64)
        return Totals(first, steps, examples, summed("seconds"))

    def places(self, first: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place of the segment of each block (`Totals`)."""
        places: NDArray[np.int64] = first[self.column("attempts")] + self.column("segments")
        return places

    def followed_by(self, name: str, values: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
        """A column, continued by the values of validations. Nobody can write to it, because all callers of
        `Replay.pieces` share it."""
        column = self.column(name)
        joined = np.concatenate([column, np.array(values, dtype=column.dtype)])
        joined.setflags(write=False)
        return joined
