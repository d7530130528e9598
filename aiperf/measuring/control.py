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
from nas.ops import TENSOR_OPS

LEAST_SECONDS = 10.0
LEAST_STEPS = 20  # of an accelerator
STEPS_NEEDED = 2  # of each size: one to warm up, one to time


@dataclass(frozen=True)
class ControlRate:
    """What was timed on one device."""

    batch_size: int
    steps: int
    seconds: float
    size: int
    """Of the examples: `ControlNetwork.sizes`."""

    @property
    def examples_per_second(self) -> float:
        return self.batch_size * self.steps / self.seconds


def measure_control(control: ControlNetwork, device: Device, format: str, seconds: float) -> ControlRate:
    """A processor: the largest size of which two steps fit into these seconds. Another device: at least 10 s
    and 20 steps after one untimed step, with the control's batch or what fits."""
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


def _climbed(control: ControlNetwork, device: Device, format: str, seconds: float) -> ControlRate:
    """A step cannot be interrupted, so a processor climbs: to the next size only where the last one's time
    says that it fits. One that is ten times slower than today's ends on smaller examples, and the result
    says so. One network does for all sizes: its weights do not depend on the size of the examples.
    """
    climb = control.climb
    network = placed(control.graph(control.sizes[-1]), device)
    operations = {size: control.graph(size).cost.train.price(TENSOR_OPS) for size, _ in climb}
    training_step(network, device, format, *reversed(climb[0]))  # what torch loads for its first optimizer
    until, found = perf_counter() + seconds, None
    for size, batch_size in climb:
        if found is not None:
            larger = batch_size * operations[size] / (found.batch_size * operations[found.size])
            if perf_counter() + STEPS_NEEDED * found.seconds * larger > until:
                break
        step = training_step(network, device, format, batch_size, size)
        step()
        found = ControlRate(batch_size, 1, _seconds(step), size)
    assert found is not None
    steps, total = found.steps, found.seconds
    while perf_counter() + found.seconds < until:
        steps, total = steps + 1, total + _seconds(step)
    return ControlRate(found.batch_size, steps, total, found.size)


def _seconds(step: Callable[[], None]) -> float:
    began = perf_counter()
    step()
    return perf_counter() - began
