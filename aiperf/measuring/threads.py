"""How many threads a processor computes with: measured, and measured again until the choice is sure.

The threads of a product wait for each other by spinning. Where one of them has lost its core to another
program, the others spin for as long as the kernel takes to give it back, and a step with all cores takes up
to a hundred times as long as one with a core less. So the number is measured.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from aiperf.device import Device

NEARLY = 1.1
"""Times the best: numbers that come so near count as equal, and the fewest threads are the default, for they
lose least when others come."""
LEAST_ROUNDS = 5
"""With fewer, nothing is known of how sure a choice is."""
RESAMPLES = 200
SURE = 0.99
"""Share of the resamples after which no more is measured."""


@dataclass(frozen=True)
class ThreadChoice:
    """The number of threads for a kind of work, and what it rests on."""

    count: int
    seconds: Mapping[int, float]
    """The median time [s] of the work by number of threads."""
    times: Sequence[float]
    """All times [s] with the chosen number."""
    share: float
    """The share of resampled measurements that choose this number; 0 where too few rounds were timed."""


def choose_threads(
    device: Device, counts: Sequence[int], work: Callable[[], object], seconds: float
) -> ThreadChoice:
    """Uses the best of these numbers of threads, rising, for this work from now on; takes about so many
    seconds at most."""
    until = perf_counter() + seconds
    times: dict[int, list[float]] = {count: [] for count in counts}
    for count in counts:  # the fewest first: with more, a step may take a hundred times as long
        device.use_threads(count)
        work()
        times[count].append(_timed(work))
    choice, rounds, checked = choice_of(times), 1, LEAST_ROUNDS
    while choice.share < SURE and perf_counter() + sum(choice.seconds.values()) < until:
        for count in counts:  # in turn, for what else runs here comes and goes
            device.use_threads(count)
            times[count].append(_timed(work))
        rounds += 1
        if rounds == checked:
            choice, checked = choice_of(times), 2 * checked
    choice = choice_of(times)
    device.use_threads(choice.count)
    return choice


def choice_of(times: Mapping[int, Sequence[float]]) -> ThreadChoice:
    """From the times of each round by number of threads, by their medians.

    How sure that is: rounds are drawn with replacement, and each draw chooses (Efron, "Bootstrap methods:
    another look at the jackknife", Annals of Statistics 7(1), 1979).
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
