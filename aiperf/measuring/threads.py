"""Steps of several contenders (a network, a number of threads, an engine), timed in turn until the choice
among them is reliable.

The threads of a product wait for each other by spinning. If one of them loses its core to another program,
the others spin until the kernel gives it back, and a step on all cores takes up to a hundred times as long as
one on all cores but one. So the number of threads is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from aiperf.proposing.thread_choice import LEAST_ROUNDS, Pair, best_pair, reliability
from aiperf.wire.messages import TYPICAL

SURE = 0.99
"""Fraction of the resamples that must agree for the measurement to end early."""
ENOUGH_ROUNDS = 2 * LEAST_ROUNDS
"""Minimum number of rounds before a measurement ends early: an engine must save two standard errors, which
fewer rounds make large."""
HOPELESS = 4.0
"""Factor on the best of a network by which both first steps of a contender may take longer for it to be timed
again. If the first one takes longer by the square of it, there is no second."""
BEHIND = 1.5
"""Factor on the best median of a network by which the fastest step of a contender may take longer, after
LEAST_ROUNDS. A contender that other programs only disturb has some step that is faster."""


@dataclass(frozen=True)
class Contender:
    """What may make the steps of a network."""

    network: str
    """SEED or TYPICAL."""
    threads: int
    engine: str

    @property
    def pair(self) -> Pair:
        return self.threads, self.engine


Times = Mapping[Contender, Sequence[float]]
"""Times of steps in seconds, in the order of the rounds."""


def time_in_turn(
    contenders: Sequence[Contender],
    step: Callable[[Contender], float],
    seconds: float,
    least: int = LEAST_ROUNDS,
) -> Times:
    """Times of steps, measured in about `seconds`; `step` makes one and returns its time in seconds.

    The contenders take turns, because the load of other programs changes with time, and the fewest threads
    come first: with more, a step may take a hundred times as long. At least `least` rounds are timed, until
    the choice for the typical network is reliable or the time is over. A contender that cannot be chosen is
    given up, so that others are timed more often.
    """
    until, times = perf_counter() + seconds, _first_steps(contenders, step)
    left = [
        contender for contender in times if min(times[contender]) <= HOPELESS * _best(contender, times, min)
    ]
    times = {contender: each[1:] for contender, each in times.items()}  # the first steps were warm-up
    rounds, checked = 1, LEAST_ROUNDS
    while rounds < least or perf_counter() + sum(median(times[each]) for each in left) < until:
        for contender in left:
            times[contender].append(step(contender))
        rounds += 1
        if rounds == checked:
            if rounds >= ENOUGH_ROUNDS and reliability(of_typical(times))[1] >= SURE:
                break
            checked *= 2
            left = [each for each in left if min(times[each]) <= BEHIND * _best(each, times, median)]
    return times


def of_typical(times: Times) -> Mapping[Pair, Sequence[float]]:
    """The times with the typical network, by which a choice is made."""
    return {contender.pair: each for contender, each in times.items() if contender.network == TYPICAL}


def chosen(times: Times) -> Pair:
    """The number of threads and the engine for steps of the typical network."""
    return best_pair({pair: median(each) for pair, each in of_typical(times).items()})


def _first_steps(
    contenders: Sequence[Contender], step: Callable[[Contender], float]
) -> dict[Contender, list[float]]:
    """Two steps of each contender, of which the first warms up. Of a number of threads with which one
    contender is hopeless, compared with fewer threads, no other one is tried."""
    times: dict[Contender, list[float]] = {}
    hopeless = set[int]()
    for contender in sorted(contenders, key=lambda each: each.threads):
        if contender.threads in hopeless:
            continue
        times[contender] = [first := step(contender)]
        is_slow = first > HOPELESS**2 * _best(contender, times, min)
        times[contender].append(first if is_slow else step(contender))
        if min(times[contender]) > HOPELESS * _best(contender, times, min):
            hopeless.add(contender.threads)
    return times


def _best(contender: Contender, times: Times, figure: Callable[[Iterable[float]], float]) -> float:
    """The best figure of the contenders with the same network."""
    return min(figure(each) for other, each in times.items() if other.network == contender.network)
