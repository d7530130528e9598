"""The control: training steps of a task's fixed network on random examples, timed before the span.

A search that drifts to fat layers raises the score; this rate beside it does not move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch

from aiperf.device import Device
from aiperf.measuring.training_step import placed, training_step
from aiperf.tasks.task import ControlNetwork
from nas.graph import Graph
from nas.modules import Network
from nas.ops import TENSOR_OPS

LEAST_SECONDS = 10.0
LEAST_STEPS = 20  # of an accelerator
STEPS_NEEDED = 2  # of each size: one to warm up, one to time
STEPS_OF_BUILDING = 1  # drawing the weights of a network takes about as long as one of its steps


@dataclass(frozen=True)
class ControlRate:
    """What was timed on one device."""

    batch_size: int
    steps: int
    seconds: float
    size: int
    """Of the examples: `ControlNetwork.sizes`."""
    network: str = ""
    """The name of the smaller network where it took this one's place."""

    @property
    def examples_per_second(self) -> float:
        return self.batch_size * self.steps / self.seconds


def measure_control(control: ControlNetwork, device: Device, format: str, seconds: float) -> ControlRate:
    """A processor: the largest network and size of which two steps fit into these seconds. Another device: at
    least 10 s and 20 steps after one untimed step, with the control's batch or what fits."""
    if device.kind == "cpu":
        return _climbed(control, device, format, seconds)
    batch_size = control.batch_size
    while True:
        try:
            graph = control.graph(control.sizes[-1])
            return time_steps(graph, device, format, batch_size, LEAST_STEPS, LEAST_SECONDS)
        except torch.OutOfMemoryError:
            if batch_size == 1:
                raise
            batch_size //= 2
            device.clean()


def time_steps(
    graph: Graph, device: Device, format: str, batch_size: int, least_steps: int, least_seconds: float
) -> ControlRate:
    """Training steps on random examples that lie in memory, after one untimed step."""
    size = graph.input[-1]
    step = training_step(placed(graph, device), device, format, batch_size, size)
    step()
    device.synchronise()
    began, steps, seconds = perf_counter(), 0, 0.0
    while steps < least_steps or seconds < least_seconds:
        for _ in range(1 if device.kind == "cpu" else least_steps):
            step()
            steps += 1
        device.synchronise()
        seconds = perf_counter() - began
    return ControlRate(batch_size, steps, seconds, size)


@dataclass(frozen=True)
class _Rung:
    """What a processor climbs to."""

    network: ControlNetwork
    size: int
    batch_size: int

    @property
    def operations(self) -> int:
        """Of a step."""
        return self.batch_size * self.network.graph(self.size).cost.train.price(TENSOR_OPS)


def _climbed(control: ControlNetwork, device: Device, format: str, seconds: float) -> ControlRate:
    """A step cannot be interrupted, so a processor climbs: to the next size or network only where the last
    one's time says that it fits. One that is ten times slower than today's ends on smaller examples or on the
    smaller network, and the result says so. One network does for all its sizes: its weights do not depend on
    the size of the examples. A network that is not reached is never built: its memory is not taken either.
    """
    networks = [control.smaller, control] if control.smaller else [control]
    first, *rungs = [_Rung(one, *rung) for one in networks for rung in one.climb]
    network = placed(first.network.graph(first.network.sizes[-1]), device)
    # Not timed: what torch loads for its first optimizer.
    training_step(network, device, format, first.batch_size, first.size)
    until, found = perf_counter() + seconds, first
    step, took = _warm(network, device, format, first)
    for rung in rungs:
        larger = rung.operations / found.operations
        needed = STEPS_NEEDED if rung.network is found.network else STEPS_NEEDED + STEPS_OF_BUILDING
        if perf_counter() + needed * took * larger > until:
            break
        if rung.network is not found.network:
            network = placed(rung.network.graph(rung.network.sizes[-1]), device)
        found, (step, took) = rung, _warm(network, device, format, rung)
    steps, total = 1, took
    while perf_counter() + took < until:
        steps, total = steps + 1, total + _seconds(step)
    name = "" if found.network is control else found.network.short
    return ControlRate(found.batch_size, steps, total, found.size, name)


def _warm(network: Network, device: Device, format: str, rung: _Rung) -> tuple[Callable[[], None], float]:
    """A step after the first one, and its seconds."""
    step = training_step(network, device, format, rung.batch_size, rung.size)
    step()
    return step, _seconds(step)


def _seconds(step: Callable[[], None]) -> float:
    began = perf_counter()
    step()
    return perf_counter() - began
