"""The passes of a training step, as every engine makes them; the eager one asks torch for each layer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from aiperf.device import Device
from aiperf.engines.objective import objective_of
from nas.modules import Network


@dataclass(frozen=True)
class Passes:
    """A network, and all that its forward and backward passes depend on."""

    network: Network
    device: Device
    format: str
    scaler: torch.amp.GradScaler
    label_smoothing: float = 0.0

    def loss(self, module: nn.Module, examples: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of a batch by `module`, which computes as the network does."""
        objective = objective_of(self.network.graph, self.label_smoothing)
        with self.device.autocast(self.format):
            return objective.loss(module(examples), labels)


@contextlib.contextmanager
def unchanged(passes: Passes) -> Iterator[None]:
    """A context after which the statistics of batch norm and the random state are as before, whatever is
    raised inside, and gradients are removed."""
    network, device = passes.network, passes.device.torch
    tensors = network.tensors().items()
    statistics = {name: tensor.clone() for name, tensor in tensors if not tensor.requires_grad}
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
    """Makes the passes of one network. This one is eager: layer by layer, as torch does unasked."""

    name: ClassVar[str] = "eager"
    is_made_anew: ClassVar[bool] = False
    """For each network, by a capture or a compiler; it is then checked in each trial."""

    def __init__(self, passes: Passes) -> None:
        self.passes = passes
        self.bare: nn.Module = passes.network
        """What computes as the network does, with the same tensors."""
        self.module: nn.Module = self.bare
        """The same, wrapped by what averages gradients over a group, if anything does."""
        self.answers = self.answering(passes.network)
        """What is evaluated."""

    @property
    def is_wrapped(self) -> bool:
        return self.module is not self.bare

    @classmethod
    def why_not(cls, device: Device) -> str:
        """Why it cannot be used with this device; empty where it can."""
        return ""

    @classmethod
    def answering(cls, network: Network) -> Network:
        """This network, or one of the same layers that computes in an order of its own."""
        return network

    @classmethod
    def begins(cls, wrapped: bool) -> int:
        """The first step of a trial that it can make; those before are eager. `wrapped`: after the first one
        a group wraps the network."""
        return 0

    def prepare(self, examples: Tensor, labels: Tensor) -> None:
        """Does whatever its first step would wait for, on a batch of the shape of all others.

        Meets no other rank of a group. Leaves gradients, statistics and random numbers changed. Raises what
        torch raises.
        """

    def moved(self, examples: Tensor, labels: Tensor) -> None:
        """As `prepare`, where the network's tensors now lie elsewhere and hooks may hang on them."""

    def step(self, examples: Tensor, labels: Tensor) -> Tensor:
        """Sets the gradients of the batch, as the scaler multiplied them; its loss (), detached."""
        loss = self.passes.loss(self.module, examples, labels)
        self.passes.network.zero_grad(set_to_none=True)
        self.passes.scaler.scale(loss).backward()
        return loss.detach()

    def release(self) -> None:
        """Gives back what it holds beside the network."""
