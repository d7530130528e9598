"""The control: training steps of ResNet-50 v1.5 on synthetic images, timed before the span.

A search that drifts to fat convolutions raises the score; this rate beside it does not move.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import torch
from torch.nn.functional import cross_entropy

from aiperf.device import Device
from nas.graph import Graph
from nas.modules import Network
from nas.seeds import resnet50
from nas.weights import initial

__all__ = ["ControlRate", "measure_control", "time_steps"]

SIDE, CLASSES = 224, 1000
LEAST_SECONDS = 10.0
ACCELERATOR = (256, 20)  # images a step, least steps
CPU = (8, 5)


@dataclass(frozen=True)
class ControlRate:
    """What was timed on one device."""

    batch_size: int
    steps: int
    seconds: float

    @property
    def images_per_second(self) -> float:
        return self.batch_size * self.steps / self.seconds


def measure_control(device: Device, format: str) -> ControlRate:
    """At least 10 s and 20 steps (a CPU: 5) after one untimed step, at batch 256 or what fits."""
    batch_size, least_steps = CPU if device.kind == "cpu" else ACCELERATOR
    while True:
        try:
            graph = resnet50((3, SIDE, SIDE), CLASSES)
            return time_steps(graph, device, format, batch_size, least_steps, LEAST_SECONDS)
        except torch.OutOfMemoryError:
            if batch_size == 1:
                raise
            batch_size //= 2
            device.clean()


def time_steps(
    graph: Graph, device: Device, format: str, batch_size: int, least_steps: int, least_seconds: float
) -> ControlRate:
    """Training steps on random images that lie in memory, after one untimed step."""
    network = Network(graph)
    network.load(initial(graph, seed=0))
    network.place(device.torch)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch_size, *graph.input, generator=generator)
    images = images.to(device.torch, memory_format=torch.channels_last)
    labels = torch.randint(graph.classes, (batch_size,), generator=generator).to(device.torch)

    def step() -> None:
        with device.autocast(format):
            loss = cross_entropy(network(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # fp16 needs no scaling here: nothing is learnt
        optimizer.step()

    step()
    device.synchronise()
    began, steps, seconds = perf_counter(), 0, 0.0
    while steps < least_steps or seconds < least_seconds:
        for _ in range(1 if device.kind == "cpu" else least_steps):
            step()
            steps += 1
        device.synchronise()
        seconds = perf_counter() - began
    return ControlRate(batch_size, steps, seconds)
