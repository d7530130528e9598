"""Several runs as one figure: the median, MLPerf's olympic mean, and the coefficient of variation.

A run that never reached what was asked is infinity: it is slower than all that did.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

LEAST_RUNS = 3
"""Of an olympic mean: of two, none is left."""


@dataclass(frozen=True)
class Summed:
    value: float | None
    why_not: str = ""
    """Why there is none, in a few words."""


def median(values: Sequence[float]) -> Summed:
    """Infinite where half of the runs, or more, never got there."""
    middle = statistics.median(values)
    return Summed(middle) if isfinite(middle) else Summed(None, "not reached")


def olympic(values: Sequence[float]) -> Summed:
    """The mean without the fastest and the slowest run. One that never got there may be the slowest; with two
    there is no result (MLPerf Training Rules, section "Benchmark Results")."""
    if len(values) < LEAST_RUNS:
        return Summed(None, f"needs {LEAST_RUNS} runs")
    if values.count(inf) > 1:
        return Summed(None, f"invalid: {values.count(inf)} not reached")
    return Summed(statistics.fmean(sorted(values)[1:-1]))


def variation(values: Sequence[float]) -> Summed:
    """The standard deviation over the mean, of a sample of runs. Of those alone that got there it would be
    too small, so there is none where one did not."""
    if inf in values:
        return Summed(None, f"{values.count(inf)} not reached")
    mean = statistics.fmean(values)
    if len(values) < 2 or mean <= 0:
        return Summed(None, "needs 2 runs")
    return Summed(statistics.stdev(values) / mean)
