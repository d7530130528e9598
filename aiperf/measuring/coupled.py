"""The coupled control: the control's training steps with gradients averaged over all devices of the run.

The same steps of each device by itself, all at once, are timed next to them, in turn: what else happens on
the machine then slows down both. So the quotient of both rates shows what the links between the devices cost
a training that spans all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Protocol

import torch

from aiperf.device import Device
from aiperf.device.device import memory_errors
from aiperf.errors import WorldError
from aiperf.measuring.control import LEAST_STEPS
from aiperf.measuring.training_step import place_network, training_steps
from aiperf.parallel.ddp import averaging
from aiperf.tasks.task import ControlNetwork
from nas.graph import Graph

CPU_BLOCKS = 2
"""Fewest blocks of a CPU, which have one step each; one of another device has LEAST_STEPS."""
MOST_BLOCKS = 5  # of which the median counts: another program may interrupt some of them

Step = Callable[[], None]


class Everyone(Protocol):
    """What one rank needs of the others. All of them must call the same methods in the same order."""

    def slowest(self, seconds: float) -> float:
        """The largest of the numbers of all ranks; each has come here by then."""

    def left(self) -> float:
        """Seconds until the limit, the same on all ranks."""

    def couples(self, what: str, **found: int | float | str) -> None:
        """Writes what this rank does next, and fields of its `CoupledPart`."""


def measure_coupled(control: ControlNetwork, device: Device, format: str, all_ranks: Everyone) -> None:
    """Times blocks of steps by themselves and coupled, in turn.

    A CPU takes the smallest examples of the control, which every CPU has timed. Another device takes the
    control's batch or, if a step of either kind does not fit into the memory of one of them, the largest
    half, quarter, … that does. Raises WorldError if the device does not support the format, or not one
    example fits.
    """
    device.declare(format)
    on_cpu = device.kind == "cpu"
    network = control.smaller if on_cpu and control.smaller else control
    size, batch_size = network.climb[0] if on_cpu else (network.sizes[-1], network.batch_size)
    name = "" if network is control else network.short
    all_ranks.couples("the first step by itself", network=name, size=size)
    alone, coupled, batch_size = _first_steps(network.graph(size), device, format, batch_size, all_ranks)
    all_ranks.couples("the first coupled step", batch_size=batch_size)
    coupled()
    device.synchronise()
    block, least = (1, CPU_BLOCKS) if on_cpu else (LEAST_STEPS, 1)
    times, last = list[tuple[float, float]](), 0.0
    while len(times) < least or (len(times) < MOST_BLOCKS and all_ranks.left() > 2 * last):
        all_ranks.couples(f"block {len(times) + 1} of steps by themselves")
        all_ranks.slowest(0.0)
        by_itself = _seconds(alone, block, device)
        all_ranks.couples(f"block {len(times) + 1} of coupled steps")
        last = all_ranks.slowest(by_itself)
        together = all_ranks.slowest(_seconds(coupled, block, device))
        times.append((by_itself, together))
        last += together
    all_ranks.slowest(0.0)  # so that none leaves while another still needs it
    alone_seconds, seconds = (len(times) * median(each) for each in zip(*times))
    all_ranks.couples("", steps=block * len(times), alone_seconds=alone_seconds, seconds=seconds)


def _first_steps(
    graph: Graph, device: Device, format: str, batch_size: int, all_ranks: Everyone
) -> tuple[Step, Step, int]:
    """A step of each kind and the batch that fits on all ranks. The one by itself was made once.

    A rank that lacked memory amid a coupled step would leave the others in a collective that never ends. So
    the step is first made without sending anything: its gradients are then beside the buffers that a coupled
    step puts them into, so that it needs at least as much memory.
    """
    network = place_network(graph, device)
    wrapped = averaging(network, device, equal=True)
    steps = training_steps(network, device, format)
    while True:
        lacks = 0.0
        try:
            with memory_errors():
                alone = steps(batch_size, graph.input)
                coupled = steps(batch_size, graph.input, wrapped)
                alone()
                with wrapped.no_sync():
                    coupled()
                device.synchronise()
        except torch.OutOfMemoryError:
            lacks = 1.0
        if not all_ranks.slowest(lacks):
            return alone, coupled, batch_size
        batch_size //= 2
        if not batch_size:
            raise WorldError("not one example of the control fits into the memory")
        device.clean()


def _seconds(step: Step, steps: int, device: Device) -> float:
    began = perf_counter()
    for _ in range(steps):
        step()
    device.synchronise()
    return perf_counter() - began
