"""Several runs as one figure: the median, MLPerf's olympic mean, and the coefficient of variation.

A run that did not reach the target counts as infinity: it is slower than all that did.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from math import inf, isfinite

from nas.frozen import frozen

LEAST_RUNS = 3
"""Fewest runs for an olympic mean: of two, none is left without the fastest and the slowest."""


@frozen
class Summed:
    """One figure made of several runs."""

    value: float | None
    why_not: str = ""
    """Why there is no value, in a few words."""


def median(values: Sequence[float]) -> Summed:
    """The median; no value if half of the runs or more did not reach the target."""
    middle = statistics.median(values)
    return Summed(middle) if isfinite(middle) else Summed(None, "not reached")


def olympic(values: Sequence[float]) -> Summed:
    """The mean without the fastest and the slowest run. The slowest may be one that did not reach the target;
    with two of those there is no result (MLPerf Training Rules, section "Benchmark Results")."""
    if len(values) < LEAST_RUNS:
        return Summed(None, f"needs {LEAST_RUNS} runs")
    if values.count(inf) > 1:
        return Summed(None, f"invalid: {values.count(inf)} not reached")
    return Summed(statistics.fmean(sorted(values)[1:-1]))


def variation(values: Sequence[float]) -> Summed:
    """The coefficient of variation: the sample's standard deviation over its mean. There is none if a run did
    not reach the target, because that of the other runs alone would be too small."""
    if inf in values:
        return Summed(None, f"{values.count(inf)} not reached")
    mean = statistics.fmean(values)
    if len(values) < 2 or mean <= 0:
        return Summed(None, "needs 2 runs")
    return Summed(statistics.stdev(values) / mean)
