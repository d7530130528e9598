"""Training with few passes over memory for the layers between the convolutions: in C on a CPU, in Triton on
NVIDIA's and AMD's devices. See docs/performance.md."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from aiperf.device import Device
from aiperf.engines.engine import Engine, Passes
from aiperf.engines.fused.backend import Backend
from aiperf.engines.fused.c_backend import IN_C
from aiperf.engines.fused.fusing import fuse
from aiperf.engines.fused.kernels import unavailable
from aiperf.engines.fused.triton_backend import IN_TRITON
from aiperf.engines.fused.triton_launch import why_no_triton
from nas.modules import Network

__all__ = ["BACKENDS", "IN_C", "Fused", "fuse", "unavailable"]

FEW = 2
"""Number of images with which something is tried: one may have a single value per channel, which a batch norm
refuses in training."""
BACKENDS: Mapping[str, Backend] = {backend.kind: backend for backend in (IN_C, IN_TRITON)}
"""What computes fused steps, by the kind of device."""


def compile_answers(passes: Passes, answers: Network, images: Tensor) -> None:
    """Compiles the kernels with which the fused network is evaluated, if they are compiled when first needed:
    else all ranks of a group would wait for that in a validation."""
    if not BACKENDS[images.device.type].compiles:
        return
    answers.eval()
    try:
        with torch.inference_mode(), passes.device.untuned(), passes.device.autocast(passes.format):
            answers(images[:FEW])
    finally:  # its layers are those of the network, which trains eagerly if this fails
        answers.train()


class Fused(Engine):
    """Makes the same steps with fewer passes over memory. The kernels are the same for all networks, so steps
    are compared with eager ones before the span only. The network is copied with another plan and keeps its
    tensors, so whatever saves, loads or optimizes them is unchanged."""

    name: ClassVar[str] = "fused"

    def __init__(self, passes: Passes) -> None:
        super().__init__(passes)
        self.bare = self.module = self.answers

    @classmethod
    def answering(cls, network: Network) -> Network:
        """The network with a fused plan, sharing all tensors with the given one. Raises Unfit as `fuse`
        does."""
        fused = copy.copy(network)
        fuse(fused, BACKENDS[next(network.parameters()).device.type])
        return fused

    def prepare(self, images: Tensor, labels: Tensor) -> None:
        """Checks that the kernels support the inputs of each step, and compiles those that are not compiled
        yet, for steps and validations. Raises Unfit. The images are a batch (batch, channels, height, width),
        or bytes of text (batch, positions)."""
        compiles = BACKENDS[images.device.type].compiles
        # The size of the batch may decide what is compiled, and which kernels of convolutions are fastest.
        size = len(images) if compiles else FEW
        loss = self.passes.loss(self.bare, images[:size], labels[:size])
        if compiles:
            # Not `backward`, which would call the hooks that send gradients to other ranks.
            torch.autograd.grad(loss, [each for each in self.bare.parameters() if each.requires_grad])
        compile_answers(self.passes, self.answers, images)

    @classmethod
    def why_not(cls, device: Device) -> str:
        """Reason why there are no kernels for this device; empty if there are. On a CPU they are compiled
        here, which takes some seconds the first time."""
        if device.kind == IN_C.kind:
            return unavailable()
        if device.kind != IN_TRITON.kind:
            return f"there are no fused steps for {device.kind} devices"
        if "bf16" not in device.formats:
            return f"{device.name} is older than compute capability 8.0, for which the kernels are compiled"
        return why_no_triton()
