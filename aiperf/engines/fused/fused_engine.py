"""The fused engine: the network with a rewritten plan, by the kernels of its device."""

from __future__ import annotations

import copy
from typing import ClassVar

from torch import Tensor

from aiperf.device import Device
from aiperf.engines.engine import Engine, Passes
from aiperf.engines.fused.c_backend import IN_C
from aiperf.engines.fused.kernels import unavailable
from aiperf.engines.fused.plan import fuse
from nas.modules import Network

FEW = 2
"""Number of images in a trial step: one image may have a single value per channel, which a batch norm refuses
in training."""


class Fused(Engine):
    """Makes the same steps with fewer passes over memory. The kernels are the same for all networks, so steps
    are compared with eager ones before the span only."""

    name: ClassVar[str] = "fused"

    def __init__(self, passes: Passes) -> None:
        super().__init__(passes)
        self.bare = self.module = self.answers

    @classmethod
    def answering(cls, network: Network) -> Network:
        fused = copy.copy(network)
        fuse(fused, IN_C)
        return fused

    def prepare(self, images: Tensor, labels: Tensor) -> None:
        """Checks on a few images that the kernels support the inputs of each step. Raises Unfit."""
        self.passes.loss(self.module, images[:FEW], labels[:FEW])

    @classmethod
    def why_not(cls, device: Device) -> str:
        return unavailable() if device.kind == "cpu" else f"{device.kind} devices have kernels of their own"
