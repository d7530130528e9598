"""The number of threads that a CPU computes with, measured until the choice is reliable.

The threads of a product wait for each other by spinning. If one of them loses its core to another program,
the others spin until the kernel gives it back, and a step on all cores takes up to a hundred times as long as
one on all cores but one. So the number is measured.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from aiperf.device import Device

NEARLY = 1.1
"""Factor on the best time within which numbers of threads count as equally fast. Of these the fewest threads
are chosen, because they lose least when other programs start."""
LEAST_ROUNDS = 5
"""Minimum number of rounds from which the reliability of a choice can be estimated."""
RESAMPLES = 200
SURE = 0.99
"""Fraction of the resamples that must agree for the measurement to end early."""


@dataclass(frozen=True)
class ThreadChoice:
    """The chosen number of threads for a kind of work, and the measurements that support it."""

    count: int
    seconds: Mapping[int, float]
    """Median time of the work in seconds, by number of threads."""
    times: Sequence[float]
    """All times in seconds with the chosen number."""
    share: float
    """Fraction of the resamples that choose this number; 0 if too few rounds were timed."""


def choose_threads(
    device: Device, counts: Sequence[int], work: Callable[[], object], seconds: float
) -> ThreadChoice:
    """Chooses the best of `counts`, in rising order, for this work, and uses it from now on. It takes about
    `seconds` at most."""
    until = perf_counter() + seconds
    times: dict[int, list[float]] = {count: [] for count in counts}
    for count in counts:  # the fewest first: with more, a step may take a hundred times as long
        device.use_threads(count)
        work()
        times[count].append(_timed(work))
    choice, rounds, checked = choice_of(times), 1, LEAST_ROUNDS
    while choice.share < SURE and perf_counter() + sum(choice.seconds.values()) < until:
        for count in counts:  # in turn, because the load of other programs changes with time
            device.use_threads(count)
            times[count].append(_timed(work))
        rounds += 1
        if rounds == checked:
            choice, checked = choice_of(times), 2 * checked
    choice = choice_of(times)
    device.use_threads(choice.count)
    return choice


def choice_of(times: Mapping[int, Sequence[float]]) -> ThreadChoice:
    """The choice by the median of the times of all rounds, which are given by number of threads.

    Its reliability is estimated by a bootstrap: rounds are drawn with replacement, and a choice is made from
    each draw (Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7(1), 1979).
    """
    rounds = len(next(iter(times.values())))
    middle = {count: median(measured) for count, measured in times.items()}
    count = fewest_near_best(middle)
    if rounds < LEAST_ROUNDS:
        return ThreadChoice(count, middle, times[count], 0.0)
    rng, alike = random.Random(0), 0
    for _ in range(RESAMPLES):
        drawn = [rng.randrange(rounds) for _ in range(rounds)]
        again = {count: median([each[place] for place in drawn]) for count, each in times.items()}
        alike += fewest_near_best(again) == count
    return ThreadChoice(count, middle, times[count], alike / RESAMPLES)


def fewest_near_best(seconds: Mapping[int, float]) -> int:
    """The fewest threads that are nearly as fast as the fastest."""
    best = min(seconds.values())
    return min(count for count, took in seconds.items() if took <= NEARLY * best)


def _timed(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began
