"""A search among modelled workers: does selection pay?"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass, field
from statistics import median

from aiperf.config import BoundsConfig
from nas.graph import Graph
from nas.search import Evolution, Observation, RandomSearch, Search
from nas.seeds import residual

SEED = residual()
BOUNDS = BoundsConfig(max_operations=64.0, max_parameters=64.0, max_activations=64.0)


def true_error(graph: Graph) -> float:
    """Falls with the logarithm of the operations: 0.30 at the seed, 0.21 at ten times its operations."""
    return 0.30 - 0.04 * math.log(graph.operations / SEED.operations)


@dataclass
class Cluster:
    """Sixteen workers that each train one trial at a time.

    Seconds are simulated. Trials last 120 to 360 seconds, one in fifty fails half-way.
    """

    search: Search
    random_seed: int
    graphs: dict[int, Graph] = field(default_factory=dict)
    observed: dict[int, float] = field(default_factory=dict)

    def run(self, seconds: float) -> Cluster:
        rng = random.Random(self.random_seed)
        idle = [(0.0, worker, -1, False) for worker in range(16)]
        while idle[0][0] < seconds:
            now, worker, ended, failed = heapq.heappop(idle)
            if ended >= 0:
                self._end(ended, failed, rng)
            number = len(self.graphs)
            self.graphs[number] = self.search.ask(number, 1).graph
            fails = rng.random() < 0.02
            end = now + rng.uniform(120, 360) * (0.5 if fails else 1)
            heapq.heappush(idle, (end, worker, number, fails))
        return self

    def _end(self, number: int, failed: bool, rng: random.Random) -> None:
        if failed:
            self.search.drop(number)
            return
        error = min(max(true_error(self.graphs[number]) + rng.gauss(0, 0.01), 0.0), 1.0)
        self.observed[number] = error
        self.search.tell(Observation(number, 1000, ((1000, error),)))

    @property
    def error(self) -> float:
        """The true error of the trial that seemed best."""
        return true_error(self.graphs[min(self.observed, key=lambda number: self.observed[number])])


def errors(kind: type[Search], seconds: float) -> list[float]:
    return [
        Cluster(kind(SEED, random_seed, BOUNDS, population=20), random_seed).run(seconds).error
        for random_seed in range(5)
    ]


def test_evolution_beats_random_search() -> None:
    evolution, baseline = errors(Evolution, 3000), errors(RandomSearch, 3000)
    assert median(evolution) < median(baseline) - 0.02, (evolution, baseline)
    assert max(baseline) < true_error(SEED), "growth alone pays here, though less"
