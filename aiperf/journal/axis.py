"""The time axis of a run: all legs in seconds of the span."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.attempts import Leg


class SpanAxis:
    """Converts times on the clock of a leg into seconds of the span, in which legs follow each other without
    a gap."""

    def __init__(self, legs: Sequence[Leg]) -> None:
        """`legs` are all those of the run, in order."""
        spans = [leg.span_seconds for leg in legs]
        self.begins: NDArray[np.float64] = np.cumsum([0.0, *spans])[:-1]
        self.ends: NDArray[np.float64] = self.begins + np.array(spans)
        self.offsets: NDArray[np.float64] = self.begins - np.array([leg.released or 0.0 for leg in legs])
        self._of_leg: list[tuple[float, float, float]] = list(
            zip(self.offsets.tolist(), self.begins.tolist(), self.ends.tolist())
        )

    def at(self, leg: Leg, t: float) -> float:
        """The time `t` of a leg in seconds of the span, clipped to the leg's part of it."""
        offset, begin, end = self._of_leg[leg.index]
        return min(max(t + offset, begin), end)

    def of(self, legs: NDArray[np.int64], times: NDArray[Any]) -> NDArray[np.float64]:
        """The same conversion for columns of leg indices and times."""
        where = 0 if len(self.begins) == 1 else legs  # of one leg, no column for each of its bounds
        found: NDArray[np.float64] = np.clip(
            times + self.offsets[where], self.begins[where], self.ends[where]
        )
        return found
