"""How far the rates of grown networks lie from the speed model of simulations, at equal operations.

    nice python -m benchmarks.scatter [--networks NAME …] [--children 60] [--seconds 300]

Prints the two tables of docs/scaling.md. The children of each seed are those that the preset's random search
proposes, one morphism each, so every run of this script has the same ones. Their training steps are timed in
turn with the seed's, so that a machine which slows down slows both. The steps are eager, of random images. On
a processor they run on one thread, whose own time other programs change little; on another device the time is
the clock's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.config import Config, load_preset, with_overrides
from aiperf.device import Device, bind
from aiperf.measuring.training_step import place_network, training_steps
from aiperf.pretending.assumptions import Speed
from aiperf.proposing.proposals import new_search
from aiperf.simulation.fits import not_negative
from aiperf.tasks.registry import task_of
from aiperf.wording import percent
from analysis.readings.robust import deviation
from benchmarks.script import head, in_turn, row
from nas.graph import Graph
from nas.morphisms import MIX
from nas.ops import TENSOR_OPS
from nas.search import Observation

CHILDREN = 60
SECONDS = 300.0
POPULATION = 8
"""Size of the population, so small that parents are young: sixty children are about a dozen generations."""
GROWING: Mapping[str, Any] = {
    "search.name": "random",
    "search.morphisms": 1,
    "search.population": POPULATION,
    # One morphism each, and any size: it is the model's part to know what the size makes of a rate.
    "search.bounds.growth_rounds": 0,
    **{f"search.bounds.min_{what}": 0.25 for what in ("operations", "activations", "layers")},
    **{f"search.bounds.max_{what}": 16.0 for what in ("operations", "parameters", "activations", "layers")},
}
PRESETS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "digits": ("digits", {"seed_architecture": "residual-4-8-16"}),
    # A step of the ranked preset itself takes a processor seconds.
    "ResNet-50": ("ranked", {"data.size": 64, "training.batch_size": 4}),
}

Array = NDArray[Any]
Step = Callable[[], None]


@dataclass(frozen=True)
class Child:
    """A network that was grown, and where it came from."""

    graph: Graph
    parent: int
    """Its place among the networks, of which the seed is the first."""
    kind: str
    """Kind of the morphism that made it; empty for the seed."""
    generation: int


def children(config: Config, count: int) -> tuple[Child, ...]:
    """The seed, then `count` networks that a search proposes if each trial completes before the next one."""
    data = config.data
    seed = task_of(data).seeds[config.seed_architecture]((data.channels, data.size, data.size), data.classes)
    search = new_search(with_overrides(config, GROWING), seed)
    found = [Child(seed, 0, "", 0)]
    for number in range(count + 1):
        candidate = search.ask(number, number + 1)
        search.tell(Observation(number, 1, ((1, 0.5),)))
        if number:
            parent = candidate.parent or 0
            kind = type(candidate.morphisms[-1]).__name__
            found.append(Child(candidate.graph, parent, kind, found[parent].generation + 1))
    return tuple(found)


@dataclass(frozen=True)
class Timed:
    """What was measured: seconds of a step of each network, in the order of `networks`."""

    networks: tuple[Child, ...]
    batch_size: int
    seconds: Array
    again: Array
    """Seconds of the seed, timed in turn with each of the others, over their median."""

    @cached_property
    def speed(self) -> Speed:
        """The model of simulations, fitted to these networks."""
        rows = np.array([(1, len(one.graph.nodes), self._operations(one)) for one in self.networks], float)
        step, layer, operation = not_negative(rows, self.seconds, needed=2)
        return Speed(1 / operation, step, layer)

    @cached_property
    def off(self) -> Array:
        """Logarithm of rate measured / rate modelled, of each network."""
        speed = self.speed
        modelled = [
            speed.step_seconds
            + speed.layer_seconds * len(one.graph.nodes)
            + self._operations(one) / speed.ops_per_second
            for one in self.networks
        ]
        return np.log(np.array(modelled) / self.seconds)

    @property
    def changes(self) -> Array:
        """`off` of each child, less that of its parent."""
        return np.array([self.off[at] - self.off[one.parent] for at, one in enumerate(self.networks) if at])

    @property
    def own(self) -> float:
        """What a morphism adds to `off`: `spread.network` of a machine model."""
        return deviation(self.changes)

    @property
    def kept(self) -> float:
        """Slope of a child's over its parent's, both less the seed's: 0 where a child has nothing of it, 1
        where its own is added to all of it. The seed's children tell nothing of it. `spread.lineage` of a
        machine model."""
        pairs = [(one.parent, at) for at, one in enumerate(self.networks) if one.parent]
        parents, own = (self.off[[pair[side] for pair in pairs]] - self.off[0] for side in (0, 1))
        return float(parents @ own / (parents @ parents)) if len(pairs) else 0.0

    def _operations(self, one: Child) -> int:
        """Tensor operations of a training step."""
        return one.graph.cost.train.price(TENSOR_OPS) * self.batch_size


def timed(config: Config, device: Device, count: int, seconds: float, say: Callable[[str], None]) -> Timed:
    """Times `count` children of a preset's seed, in about `seconds`."""
    if device.threads:
        device.use_threads(1)
    networks, batch = children(config, count), config.training.batch_size
    format = config.training.format if config.training.format in device.formats else device.formats[0]
    device.declare(format)

    def made(graph: Graph) -> Step:
        return training_steps(place_network(graph, device), device, format)(batch, graph.input)

    seed = made(networks[0].graph)
    pairs = list[tuple[float, float]]()
    for at, one in enumerate(networks[1:], start=1):
        times = in_turn((seed, made(one.graph)), seconds / count, partial(_once, device=device))
        of_seed, own = map(min, times)  # the fastest steps were disturbed least
        pairs.append((of_seed, own))
        say(f"{at} of {count}: {one.kind}, {own / of_seed:.3f} times the seed's seconds")
    usual = median(of_seed for of_seed, _ in pairs)
    again = np.array([of_seed / usual for of_seed, _ in pairs])
    return Timed(
        networks, batch, np.array([usual, *(usual * own / of_seed for of_seed, own in pairs)]), again
    )


def _once(step: Step, device: Device) -> float:
    """Seconds of one step: of the processor on a CPU, else of the clock."""
    clock = process_time if device.kind == "cpu" else perf_counter
    device.synchronise()
    began = clock()
    step()
    device.synchronise()
    return clock() - began


def figures(found: Timed) -> Iterator[tuple[str, str]]:
    """The rows of the first table."""
    seed, speed = found.networks[0].graph, found.speed
    relative = [one.graph.operations / seed.operations for one in found.networks[1:]]
    yield "children, generations", f"{len(relative)}, {max(one.generation for one in found.networks)}"
    yield "operations, times the seed's", f"{min(relative):.2f} to {max(relative):.2f}"
    yield "milliseconds of a step of the seed", f"{1e3 * found.seconds[0]:.1f}"
    model = f"{speed.ops_per_second:.3g}, {1e3 * speed.step_seconds:.3g}, {1e6 * speed.layer_seconds:.3g}"
    yield "model: OPS, ms a step, µs a layer", model
    yield "the seed, timed again", percent(deviation(np.log(found.again)), 1)
    yield "measured ÷ modelled", percent(deviation(found.off[1:]), 1)
    least, greatest = np.exp([found.off.min(), found.off.max()]) - 1
    yield "its least and greatest", f"{100 * least:+.1f} %, {100 * greatest:+.1f} %"
    yield "of a child ÷ its parent's", percent(found.own, 1)
    yield "kept of the parent's", f"{found.kept:.2f}"


def by_kind(found: Timed, kind: str) -> str:
    """How many children a kind of morphism made, and what it did to measured ÷ modelled: median, scatter."""
    own = found.changes[[one.kind == kind for one in found.networks[1:]]]
    if not len(own):
        return "–"
    scatter = f" ± {100 * deviation(own):.1f} %" if len(own) > 1 else ""
    return f"{len(own)}: {100 * (np.exp(np.median(own)) - 1):+.1f} %{scatter}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=list(PRESETS), choices=list(PRESETS))
    parser.add_argument("--children", type=int, default=CHILDREN, help="of each seed; default: 60")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each seed; default: 300")
    asked = parser.parse_args(arguments)
    device = bind("cpu", 0)
    found = {}
    for name in asked.networks:
        preset, changes = PRESETS[name]
        config = with_overrides(load_preset(preset), changes)
        found[name] = timed(config, device, asked.children, asked.seconds, lambda text: None)
    print(head("", *found))
    for each in zip(*(figures(one) for one in found.values())):
        print(row(each[0][0], *(text for _, text in each)))
    print(f"\n{head('morphism', *found)}")
    for kind in MIX:
        print(row(kind.__name__, *(by_kind(each, kind.__name__) for each in found.values())))


if __name__ == "__main__":
    main()
