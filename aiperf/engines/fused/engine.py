"""The fused engine: the network with what lies between its convolutions in few passes over memory."""

from __future__ import annotations

import copy
from typing import ClassVar

from torch import Tensor

from aiperf.device import Device
from aiperf.engines.engine import Engine, Passes
from aiperf.engines.fused.library import unavailable
from aiperf.engines.fused.plan import fuse
from nas.modules import Network

FEW = 2
"""Images: one alone may have a single value of each channel, of which a batch norm learns nothing."""


class Fused(Engine):
    name: ClassVar[str] = "fused"

    def __init__(self, passes: Passes) -> None:
        super().__init__(passes)
        self.bare = self.module = self.answers

    @classmethod
    def answering(cls, network: Network) -> Network:
        fused = copy.copy(network)
        fuse(fused)
        return fused

    def prepare(self, images: Tensor, labels: Tensor) -> None:
        """Finds out on few images whether the kernels take what each step reads. Raises Unfit."""
        self.passes.loss(self.module, images[:FEW], labels[:FEW])

    @classmethod
    def why_not(cls, device: Device) -> str:
        return unavailable() if device.kind == "cpu" else f"{device.kind} devices have kernels of their own"
