"""A distribution of latencies, with the percentiles that LoadGen reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import fsum

from nas.frozen import frozen

PERCENTILES: Mapping[str, float] = {
    "50.00": 0.5,
    "90.00": 0.9,
    "95.00": 0.95,
    "97.00": 0.97,
    "99.00": 0.99,
    "99.90": 0.999,
}
"""Percentiles as fractions, by their names in LoadGen's log."""


@frozen
class Latencies:
    """Distribution of latencies in seconds."""

    number: int
    mean: float
    least: float
    most: float
    percentiles: Mapping[str, float]
    """Latencies by the names of `PERCENTILES`."""

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Latencies:
        """The distribution of at least one latency. A percentile is the value at index int(n * p) of the
        sorted ones, as in LoadGen's results.cc."""
        found = sorted(seconds)
        number = len(found)
        percentiles = {name: found[int(number * share)] for name, share in PERCENTILES.items()}
        return cls(number, fsum(found) / number, found[0], found[-1], percentiles)
