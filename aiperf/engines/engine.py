"""The interface of an engine, which makes the passes of a training step, and the eager engine.

An engine only computes gradients; the optimizer's step, the scaler's update and the averaging by Horovod are
the trial's (`aiperf.training.train`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from aiperf.data.training import Objective
from aiperf.device import Device
from nas.frozen import frozen
from nas.graph import Graph
from nas.modules import Network


def placed(graph: Graph, weights: Mapping[str, Any], device: Device) -> Network:
    """The network of an architecture on a device, with its weights and statistics by "node.tensor". Raises
    ValueError if the weights are of another architecture."""
    network = Network(graph)
    network.load(weights)
    network.place(device.torch, device.layout)
    return network


@frozen
class Passes:
    """A network, and all that its forward and backward passes depend on."""

    network: Network
    device: Device
    format: str
    """Number format of the multiplications, by `Device.autocast`."""
    scaler: torch.amp.GradScaler
    """Multiplies the loss in fp16, so that small gradients do not become zero."""
    objective: Objective
    """What the network is trained to make small."""

    def loss(self, module: nn.Module, examples: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of a batch by `module`, which computes as the network does: a scalar (). Layers and
        objective are computed under autocast."""
        with self.device.autocast(self.format):
            return self.objective.loss(module(examples), labels)


def has_layout_of(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape have the same strides, apart from those of dimensions with one entry:
    what torch requires of a gradient and its parameter (torch/csrc/autograd/utils/grad_layout_contract.h)."""
    strides = zip(one.shape, one.stride(), other.stride())
    return all(size == 1 or mine == others for size, mine, others in strides)


@contextlib.contextmanager
def unchanged(passes: Passes) -> Iterator[None]:
    """A context after which the statistics of batch norm and the random state are as before, whatever is
    raised inside, and gradients are removed."""
    network, device = passes.network, passes.device.torch
    tensors = network.tensors().items()
    statistics = {name: tensor.clone() for name, tensor in tensors if not tensor.requires_grad}
    # `fork_rng` always keeps the state of the CPU; the list only names further devices.
    devices = [] if device.type == "cpu" else [device.index]
    try:
        with torch.random.fork_rng(devices, device_type="cuda" if device.type == "cpu" else device.type):
            yield
    finally:
        with torch.no_grad():
            for name, tensor in network.tensors().items():
                if name in statistics:
                    tensor.copy_(statistics[name])
        network.zero_grad(set_to_none=True)


class Engine:
    """Makes the forward and backward passes of one network. This engine is eager: torch runs layer by layer,
    as it does by default."""

    name: ClassVar[str] = "eager"
    is_made_anew: ClassVar[bool] = False
    """Whether it is made for each network, by a capture or a compiler; it is then checked in each trial."""

    def __init__(self, passes: Passes) -> None:
        self.passes = passes
        self.bare: nn.Module = passes.network
        """A module that computes what the network does, with the same tensors."""
        self.module: nn.Module = self.bare
        """The same module, wrapped by DistributedDataParallel in a group that averages gradients with it."""
        self.answers = self.answering(passes.network)
        """The network that is evaluated in validations."""

    @property
    def is_wrapped(self) -> bool:
        """Whether gradients are averaged over a group by the hooks of the module itself, as in DDP."""
        return self.module is not self.bare

    @classmethod
    def why_not(cls, device: Device) -> str:
        """Reason why the engine cannot be used with this device; empty if it can."""
        return ""

    @classmethod
    def answering(cls, network: Network) -> Network:
        """This network, or one with the same layers that computes them in another order."""
        return network

    @classmethod
    def begins(cls, wrapped: bool) -> int:
        """Index of the first step of a trial that the engine can make; earlier steps are eager. `wrapped`:
        the network is wrapped after the first step."""
        return 0

    def prepare(self, examples: Tensor, labels: Tensor) -> None:
        """Does all the work that the first step would wait for, on a batch of the same shape as all others.

        It communicates with no other rank of a group. It changes gradients, statistics and the random state.
        Raises what torch raises.
        """

    def moved(self, examples: Tensor, labels: Tensor) -> None:
        """Prepares again after the network's tensors have moved to other addresses; they may have hooks
        now."""

    def step(self, examples: Tensor, labels: Tensor) -> Tensor:
        """Computes the gradients of the batch, multiplied by the scaler's factor; returns the loss, shape (),
        detached.

        Gradients are left in `grad` of the parameters. They are not yet divided by the factor, and in a group
        with Horovod not yet averaged.
        """
        loss = self.passes.loss(self.module, examples, labels)
        self.passes.network.zero_grad(set_to_none=True)
        self.passes.scaler.scale(loss).backward()
        return loss.detach()

    def release(self) -> None:
        """Frees what it holds in addition to the network. It makes no step afterwards."""
