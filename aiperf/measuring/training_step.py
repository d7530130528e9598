"""Training steps of a network on random examples in memory, as they are timed before the span."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from aiperf.device import Device
from aiperf.device.plain_optimizers import SGD
from aiperf.engines.engine import placed
from aiperf.engines.objective import objective_of
from nas.frozen import frozen
from nas.graph import Graph
from nas.layers import Shape
from nas.modules import Network
from nas.ops import TENSOR_OPS
from nas.weights import initial


@frozen
class RankWork:
    """The work of a run on one rank: forward and backward passes of a network."""

    network: Graph
    """The seed, or the run's typical network (`nas.search.typical`)."""
    format: str
    """Number format of the multiplications."""
    batch_size: int
    """Training examples of one rank per step."""

    def operations(self, batch_size: int) -> int:
        """Tensor operations of one forward and backward pass over `batch_size` examples."""
        return batch_size * self.network.cost.train.price(TENSOR_OPS)


class TrainingSteps(Protocol):
    """See `training_steps`."""

    def __call__(
        self, batch_size: int, input: Shape, through: Callable[[Tensor], Tensor] | None = None
    ) -> Callable[[], None]:
        """The forward pass goes `through` the network itself, or through what is wrapped around it."""


def place_network(graph: Graph, device: Device) -> Network:
    """The network with initial weights on the device."""
    return placed(graph, initial(graph, seed=0), device)


def batch(graph: Graph, device: Device, batch_size: int, input: Shape | None = None) -> tuple[Tensor, Tensor]:
    """A random batch on the device: examples of the shape `input`, by default that of the graph, and
    targets."""
    shape = (batch_size, *(input or graph.input))
    examples, targets = objective_of(graph).random(shape, graph.classes, torch.Generator().manual_seed(0))
    return device.arranged(examples.to(device.torch)), targets.to(device.torch)


def training_steps(network: Network, device: Device, format: str) -> TrainingSteps:
    """A function that returns a function, for a batch size and a shape of the examples, that makes one step:
    forward, backward, optimizer. All share one optimizer, so that its state takes memory only once."""
    optimizer = SGD(network.parameters(), lr=1e-3, momentum=0.9)

    def of(
        batch_size: int, input: Shape, through: Callable[[Tensor], Tensor] | None = None
    ) -> Callable[[], None]:
        both = passes(network, device, format, batch_size, input, through)

        def step() -> None:
            both()
            optimizer.step()

        return step

    return of


def passes(
    network: Network,
    device: Device,
    format: str,
    batch_size: int,
    input: Shape | None = None,
    through: Callable[[Tensor], Tensor] | None = None,
) -> Callable[[], None]:
    """A function that makes the forward and the backward pass of one step, as `TrainingSteps`."""
    examples, targets = batch(network.graph, device, batch_size, input)
    forward = through or network
    objective = objective_of(network.graph)

    def both() -> None:
        with device.autocast(format):
            loss = objective.loss(forward(examples), targets)
        network.zero_grad(set_to_none=True)
        loss.backward()  # fp16 needs no scaling here: nothing is learnt

    return both
