"""The blocks of finished steps of a run, in columns: a long run has millions of them."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.events import Stepped

__all__ = ["Blocks"]


@dataclass
class Blocks:
    """One row a `Stepped` line, in the order of the journal."""

    attempts: array[int] = field(default_factory=lambda: array("q"))
    """Index of the attempt among all attempts of the run."""
    segments: array[int] = field(default_factory=lambda: array("q"))
    steps: array[int] = field(default_factory=lambda: array("q"))
    images: array[int] = field(default_factory=lambda: array("q"))
    seconds: array[float] = field(default_factory=lambda: array("d"))
    ends: array[float] = field(default_factory=lambda: array("d"))
    """On the clock of the leg, as the times of the lines."""
    times: array[float] = field(default_factory=lambda: array("d"))
    """Of the lines."""
    finite: array[int] = field(default_factory=lambda: array("b"))
    """Whether the loss was: 1 or 0."""

    def append(self, attempt: int, t: float, event: Stepped) -> None:
        self.attempts.append(attempt)
        self.segments.append(event.segment)
        self.steps.append(event.steps)
        self.images.append(event.images)
        self.seconds.append(event.seconds)
        self.ends.append(event.end)
        self.times.append(t)
        self.finite.append(event.loss is not None)

    def __len__(self) -> int:
        return len(self.attempts)

    def column(self, name: str) -> NDArray[Any]:
        """A copy of a column, which later appends leave alone."""
        column: array[Any] = getattr(self, name)
        return np.array(column)
