"""How many threads make the steps of a trial on a CPU, and by which engine: a choice of both together, from
the times of steps that were measured before the span.

Two networks are timed, the seed and the run's typical network, because a small network gains less from more
threads, or loses by them. The time of a step of another size is interpolated between the two.

The tie rule: the most threads whose steps take at most NEARLY times as long as the fastest, so that the next
run chooses the same. On a virtual machine with two processors a second thread gained −2 to 36 % from one
minute to the next, by what the neighbours left of it; only a program on the same cores made it lose much. So
few figures are near this limit there, and many near one that asks for a gain. Of two engines that are equal
within LEAST_GAIN, the default one.

Another number of threads rounds otherwise, and after a few trials the search is on another course. So a small
network keeps the threads of the typical one unless it would lose much: the rate depends little on the short
trials at the beginning, but all later networks grow from them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import median

from aiperf.config import EAGER
from aiperf.proposing.engine_choice import LEAST_GAIN, between, default_of
from aiperf.wire.reports import SEED, TYPICAL, TimedStep
from nas.frozen import frozen

NEARLY = 1.05
"""Factor on the best time within which numbers of threads count as equally fast."""
KEPT = 1.25
"""Factor on the best time within which a network of another size keeps the threads of the typical one."""
LEAST_ROUNDS = 5
"""Minimum number of rounds from which the reliability of a choice can be estimated."""
RESAMPLES = 200
"""Number of bootstrap samples of the rounds: the standard error of a share of them is at most 3.5 %."""

Pair = tuple[int, str]
"""A number of threads, and an engine."""


def most_near_best(seconds: Mapping[int, float]) -> int:
    """The most threads that are nearly as fast as the fastest."""
    best = min(seconds.values())
    return max(count for count, took in seconds.items() if took <= NEARLY * best)


def best_pair(seconds: Mapping[Pair, float]) -> Pair:
    """The engine that is fastest with the number of threads that it would get, and this number."""
    times: dict[str, dict[int, float]] = {}
    for (count, engine), seconds_of_step in seconds.items():
        times.setdefault(engine, {})[count] = seconds_of_step
    counts = {engine: most_near_best(each) for engine, each in times.items()}
    took = {engine: each[counts[engine]] for engine, each in times.items()}
    best = min(took, key=lambda engine: took[engine])
    default = default_of(took)
    if default in took and took[default] - took[best] < LEAST_GAIN * took[default]:
        best = default
    return counts[best], best


def reliability(times: Mapping[Pair, Sequence[float]]) -> tuple[float, float]:
    """Fraction of resampled measurements that choose the same number of threads, and the same pair; 0 if too
    few rounds were timed.

    This is a bootstrap: rounds are drawn with replacement, and a choice is made from each draw (Efron,
    "Bootstrap methods: another look at the jackknife", Annals of Statistics 7(1), 1979). A contender that was
    timed in fewer rounds than others was given up as too slow, and is not drawn.
    """
    rounds = max(map(len, times.values()))
    if rounds < LEAST_ROUNDS:
        return 0.0, 0.0
    chosen = best_pair({pair: median(each) for pair, each in times.items()})
    drawable = {pair: each for pair, each in times.items() if len(each) == rounds}
    rng, same_count, same_pair = random.Random(0), 0, 0
    for _ in range(RESAMPLES):
        drawn = [rng.randrange(rounds) for _ in range(rounds)]
        again = best_pair({pair: median([each[place] for place in drawn]) for pair, each in drawable.items()})
        same_count += again[0] == chosen[0]
        same_pair += again == chosen
    return same_count / RESAMPLES, same_pair / RESAMPLES


@frozen
class Threads:
    """Chooses the number of threads for the steps of a network on one rank."""

    timed: Sequence[TimedStep]
    """The rank's own times; empty if there was no choice."""
    seed_size: float
    """Operations of a step of the seed, as a fraction of those of the typical network; 1 if both are one."""

    def count(self, engine: str, size: float) -> int | None:
        """The number of threads for steps of this engine and size, in multiples of the typical network's
        operations; None if nothing was measured."""
        of = engine if self.seconds(engine, 1.0) else EAGER
        typical, seconds = self.seconds(of, 1.0), self.seconds(of, size)
        if not typical:
            return None
        count = most_near_best(typical)
        return count if seconds[count] <= KEPT * min(seconds.values()) else most_near_best(seconds)

    def seconds(self, engine: str, size: float) -> Mapping[int, float]:
        """Expected time of a step in seconds, by number of threads. If one was given up before the seed was
        timed with it, smaller networks are expected to take as long as the typical one."""
        of_engine = [step for step in self.timed if step.engine == engine]
        typical = {step.threads: step.seconds for step in of_engine if step.network == TYPICAL}
        seed = {step.threads: step.seconds for step in of_engine if step.network == SEED}
        return {
            count: between(size, self.seed_size, seed.get(count, took if seed else None), took)
            for count, took in sorted(typical.items())
        }
