"""How long a proposal takes after 100,000 told trials, and how much memory the search needs for them.

    python benchmarks/search_speed.py

Ends with 1 when a limit is missed. Every architecture has 250 nodes or more. The first 100,000 trials
are read from a record, as in a resumed run. Then come windows of 1,000 `ask` and `tell`, with 64 trials
in flight and rejected attempts included. The more operations a trial has, the smaller is its error: so
the population grows until hardly any child is within the bounds, which is the slowest it can be.
"""

from __future__ import annotations

import math
import os
import random
import resource
import statistics
import sys
from dataclasses import dataclass, replace
from time import perf_counter, process_time

from aiperf.config import BoundsConfig
from nas.graph import Graph, once
from nas.layers import Conv2d
from nas.morphisms import DeepenBottleneck, Morphism
from nas.morphisms.ties import ties
from nas.search import Evolution, Observation
from nas.seeds import resnet50

TOLD = 100_000
WINDOWS = 4
WINDOW = 1_000
IN_FLIGHT = 64
POPULATION = 100

MEDIAN_SECONDS = 0.005
P99_SECONDS = 0.020
MEMORY_BYTES = 500e6


@dataclass(frozen=True)
class Wider(Morphism):
    """Cheap and different for each number, which it writes into four widths of the seed, in base 24."""

    number: int

    def apply(self, graph: Graph) -> Graph:
        nodes, number = list(graph.nodes), self.number
        for place in _free(graph):
            number, digit = divmod(number, 24)
            layer = nodes[place].layer
            assert isinstance(layer, Conv2d)
            if digit:
                nodes[place] = replace(nodes[place], layer=replace(layer, channels=layer.channels + digit))
        return Graph(graph.input, tuple(nodes), graph)


@once
def _free(graph: Graph) -> list[int]:
    """The places of four convolutions whose width nothing is tied to."""
    free = {tie.producers[0] for tie in ties(graph) if len(tie.producers) == tie.groups == 1}
    return [place for place, node in enumerate(graph.nodes) if node.name in free][:4]


def main() -> int:
    rng = random.Random(1)
    seed = resnet50()
    while len(seed.nodes) < 250:
        seed = DeepenBottleneck.propose(seed, rng).apply(seed)
    before = peak_bytes()
    search = Evolution(seed, 1, BoundsConfig(), POPULATION)

    def observation(number: int, graph: Graph) -> Observation:
        error = 0.3 - 0.05 * math.log(graph.operations / seed.operations) + rng.gauss(0, 0.01)
        return Observation(number, 1000, ((1000, error),))

    start = perf_counter()
    for number in range(TOLD):
        graph = search.dispatched(number, None, (Wider(number),) if number else ()).graph
        search.tell(observation(number, graph))
    print(f"{TOLD:,} trials of {len(seed.nodes)} nodes or more told in {perf_counter() - start:.0f} s")

    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    print("          |       wall, ms       |     CPU, ms   |            | operations")
    print("asked and | median  p99  longest | median    p99 |   nodes    | of the")
    print("     told |                      |               |            | seed")
    met = True
    flying: dict[int, Observation] = {}
    for window in range(WINDOWS):
        wall, cpu, graphs = [], [], []
        for number in range(TOLD + window * WINDOW, TOLD + (window + 1) * WINDOW):
            ended = flying.pop(number - IN_FLIGHT, None)
            began = perf_counter(), process_time()
            graph = search.ask(number).graph
            if ended:
                search.tell(ended)
            wall.append(perf_counter() - began[0])
            cpu.append(process_time() - began[1])
            graphs.append((len(graph.nodes), graph.operations / seed.operations))
            flying[number] = observation(number, graph)
        median, p99 = statistics.median(wall), at(wall, 0.99)
        met &= median <= MEDIAN_SECONDS and p99 <= P99_SECONDS
        nodes, multiples = zip(*graphs)
        figures = median, p99, max(wall), statistics.median(cpu), at(cpu, 0.99)
        print(
            f"{(window + 1) * WINDOW:9,} | {{:6.2f}} {{:5.1f}} {{:7.1f}} | {{:6.2f}} {{:6.1f}} ".format(
                *(1e3 * seconds for seconds in figures)
            )
            + f"| {min(nodes)} to {max(nodes)} | x {statistics.median(multiples):.2f}",
            flush=True,
        )
    memory = peak_bytes() - before
    met &= memory <= MEMORY_BYTES
    print(f"memory: {memory / 1e6:.0f} MB more than before the search, caches of the graphs included")
    print(
        f"limits ({1e3 * MEDIAN_SECONDS:.0f} ms, {1e3 * P99_SECONDS:.0f} ms, {MEMORY_BYTES / 1e6:.0f} MB): "
        f"{'met' if met else 'MISSED'}"
    )
    return 0 if met else 1


def at(values: list[float], share: float) -> float:
    return sorted(values)[int(share * len(values))]


def peak_bytes() -> int:
    """Of this process; getrusage speaks of KiB on Linux and of bytes on macOS."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    sys.exit(main())
