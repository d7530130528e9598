"""The control: training steps of ResNet-50 v1.5 on synthetic images, timed before the span.

A search that drifts to fat convolutions raises the score; this rate beside it does not move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch

from aiperf.device import Device
from aiperf.measuring.training_step import placed, training_step
from aiperf.tasks.images import IMAGES
from nas.graph import Graph

NETWORK = IMAGES.control
SIZE = NETWORK.sizes[-1]
LEAST_SECONDS = 10.0
BATCH_SIZE, LEAST_STEPS = 256, 20  # of an accelerator
# A step cannot be interrupted, so a processor climbs: to the next size only where the last one's time says
# that it fits. One that is ten times slower than today's ends on smaller images, and the result says so.
CLIMB = ((NETWORK.sizes[0], 2), *((size, 8) for size in NETWORK.sizes))
"""Side of the images, images a step."""
STEPS_NEEDED = 2  # of each size: one to warm up, one to time


@dataclass(frozen=True)
class ControlRate:
    """What was timed on one device."""

    batch_size: int
    steps: int
    seconds: float
    size: int = SIZE
    """Side of the images in pixels."""

    @property
    def images_per_second(self) -> float:
        return self.batch_size * self.steps / self.seconds


def measure_control(device: Device, format: str, seconds: float) -> ControlRate:
    """A processor: the largest size of which two steps fit into these seconds. Another device: at least 10 s
    and 20 steps after one untimed step, at batch 256 or what fits."""
    if device.kind == "cpu":
        return _climbed(device, format, seconds)
    batch_size = BATCH_SIZE
    while True:
        try:
            graph = NETWORK.graph(SIZE)
            return time_steps(graph, device, format, batch_size, LEAST_STEPS, LEAST_SECONDS)
        except torch.OutOfMemoryError:
            if batch_size == 1:
                raise
            batch_size //= 2
            device.clean()


def time_steps(
    graph: Graph, device: Device, format: str, batch_size: int, least_steps: int, least_seconds: float
) -> ControlRate:
    """Training steps on random images that lie in memory, after one untimed step."""
    size = graph.input[1]
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


def _climbed(device: Device, format: str, seconds: float) -> ControlRate:
    """One network for all sizes: its weights do not depend on the size of the images."""
    network = placed(NETWORK.graph(SIZE), device)
    training_step(network, device, format, *reversed(CLIMB[0]))  # what torch loads for its first optimizer
    until, found = perf_counter() + seconds, None
    for size, batch_size in CLIMB:
        pixels = batch_size * size**2
        if found is not None:
            expected = found.seconds * pixels / (found.batch_size * found.size**2)
            if perf_counter() + STEPS_NEEDED * expected > until:
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
