"""Times the training steps of networks on this processor, eager against fused, in turns of one step each.

    python -m benchmarks.steps [--threads 1 2] [--formats bf16 fp32] [--networks NAME …]

Prints the table of docs/performance.md. The grown networks are made from the digits' seed by a fixed draw of
morphisms. A ratio above 1 says that
fused steps are faster. On one thread the time is the processor's, which other work on the machine changes
little; on more it is the clock's, for threads that wait for each other use the processor too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from time import perf_counter, process_time

import torch
from torch.nn.functional import cross_entropy

from aiperf.device import Device, bind
from aiperf.engines import fused
from aiperf.measuring.ceiling import measure_products
from aiperf.measuring.training_step import place_network
from benchmarks.script import head, in_turn, row
from nas.graph import Graph
from nas.morphisms import MIX, MorphismError
from nas.seeds import residual, resnet50

ROUND_SECONDS = 4.0
PRODUCT_SECONDS = 0.2


@dataclass(frozen=True)
class Work:
    """A network and the images of one step."""

    graph: Graph
    batch_size: int


@dataclass(frozen=True)
class Times:
    """Seconds of one step, by engine."""

    eager: list[float]
    fused: list[float]

    @property
    def ratio(self) -> float:
        """How many times as fast a fused step is."""
        return median(self.eager) / median(self.fused)


def grown(seed: int, edits: int) -> Graph:
    """The digits' seed after this many morphisms, drawn as the evolutionary search draws them."""
    graph, rng = residual((1, 32, 32), 10, (4, 8, 16)), Random(seed)
    kinds, weights = list(MIX), list(MIX.values())
    while edits:
        (kind,) = rng.choices(kinds, weights)
        try:
            graph = kind.propose(graph, rng).apply(graph)
        except MorphismError:
            continue
        edits -= 1
    return graph


def step_of(work: Work, format: str, device: Device) -> tuple[Callable[[], None], Callable[[], None]]:
    """One eager and one fused step, of networks with equal weights."""
    images = torch.randn(work.batch_size, *work.graph.input).to(memory_format=torch.channels_last)
    labels = torch.randint(work.graph.classes, (work.batch_size,))

    def made(is_fused: bool) -> Callable[[], None]:
        network = place_network(work.graph, device)
        if is_fused:
            fused.fuse(network, fused.IN_C)
        optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9, fused=True)

        def step() -> None:
            with device.autocast(format):
                loss = cross_entropy(network(images), labels, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return step

    return made(False), made(True)


def timed(work: Work, format: str, device: Device, seconds: float) -> Times:
    """Times the two steps in turn. On one thread by the processor's time; on more by the clock's."""
    clock = process_time if torch.get_num_threads() == 1 else perf_counter

    def once(step: Callable[[], None]) -> float:
        began = clock()
        step()
        return clock() - began

    return Times(*in_turn(step_of(work, format, device), seconds, once))


def fastest_product(device: Device, format: str) -> float:
    """Multiply-accumulates per second of the fastest matrix product: the ceiling that runs measure."""
    return max(found.rate.fastest for found in measure_products(device, format, PRODUCT_SECONDS)) / 2


WORKS: Mapping[str, Callable[[], Work]] = {
    **{
        f"digits, {edits} edits": lambda edits=edits: Work(grown(7, edits), 50)  # type: ignore[misc]
        for edits in (0, 4, 8, 12, 16)
    },
    "ResNet-50": lambda: Work(resnet50((3, 224, 224), 1000), 8),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=list(WORKS), choices=list(WORKS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--formats", nargs="+", default=["bf16", "fp32"], choices=["bf16", "fp32"])
    parser.add_argument("--seconds", type=float, default=ROUND_SECONDS, help="of each row")
    asked = parser.parse_args(arguments)
    if reason := fused.unavailable():
        raise SystemExit(reason)
    device = bind("cpu", 0)
    print(head("network", "format", "threads", "eager ms", "fused ms", "ratio", "share of the ceiling"))
    for format in asked.formats:
        for threads in asked.threads:
            torch.set_num_threads(threads)
            for name in asked.networks:
                work = WORKS[name]()
                ceiling = fastest_product(device, format)
                found = timed(work, format, device, asked.seconds)
                ceiling = max(ceiling, fastest_product(device, format))
                share = work.batch_size * work.graph.cost.train.mac / median(found.fused) / ceiling
                times = [f"{1e3 * median(each):.1f}" for each in (found.eager, found.fused)]
                cells = (name, format, threads, *times, f"{found.ratio:.2f}", f"{100 * share:.0f} %")
                print(row(*cells), flush=True)


if __name__ == "__main__":
    main()
