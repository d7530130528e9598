"""How many threads a processor computes with: measured, for cores that others use too make threads collapse.

The threads of a product wait for each other by spinning. Where one of them has lost its core to another
program, the others spin for as long as the kernel takes to give it back, and a step with all cores takes up
to a hundred times as long as one with a core less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from time import perf_counter

from aiperf.device import Device

NEARLY = 1.1
"""Times the best: the fewest threads that come so near are taken, for they lose least when others come."""


def choose_threads(
    device: Device, counts: Sequence[int], work: Callable[[], object], seconds: float
) -> Mapping[int, float]:
    """Uses the best of these numbers of threads, rising, for this work from now on; by number the median
    time [s]."""
    until = perf_counter() + seconds
    times: dict[int, list[float]] = {count: [] for count in counts}
    for count in counts:  # the fewest first: with more, a step may take a hundred times as long
        device.use_threads(count)
        work()
        times[count].append(_timed(work))
    while perf_counter() + _round_seconds(times) < until:
        for count in counts:  # in turn, for what else runs here comes and goes
            device.use_threads(count)
            times[count].append(_timed(work))
    found = {count: median(measured) for count, measured in times.items()}
    device.use_threads(chosen(found))
    return found


def chosen(seconds: Mapping[int, float]) -> int:
    """The fewest threads that are nearly as fast as the fastest."""
    best = min(seconds.values())
    return min(count for count, took in seconds.items() if took <= NEARLY * best)


def _round_seconds(times: Mapping[int, list[float]]) -> float:
    return sum(median(measured) for measured in times.values())


def _timed(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began
