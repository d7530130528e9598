"""The graphed engine: forward and backward pass are captured once for the shape of a batch, then replayed.

A replay starts all kernels of a step by one call, with the same addresses each time, so the host has no work
between them. The optimizer is not captured. The all-reduce is captured with DDP, after as many eager steps as
torch requires, but not with Horovod.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from aiperf.device import Device
from aiperf.device.device import Capture
from aiperf.engines.engine import Engine, Passes, has_layout_of

WARM_UP = 3
"""Number of passes before a capture, in which libraries choose their kernels and allocate their
workspaces."""
WARM_UP_WRAPPED = 11
"""Number of DDP's steps before its passes can be captured:
https://docs.pytorch.org/docs/stable/notes/cuda.html, "Usage with DistributedDataParallel"."""


class Graphed(Engine):
    """Copies each batch into the memory that was captured, and replays the graph on it."""

    name: ClassVar[str] = "graphed"
    is_made_anew: ClassVar[bool] = True

    def __init__(self, passes: Passes) -> None:
        super().__init__(passes)
        self._parameters = [each for each in passes.network.parameters() if each.requires_grad]
        self._capture: Capture | None = None
        self._examples, self._labels = torch.empty(0), torch.empty(0)
        self._loss = torch.empty(0)
        self._gradients: list[Tensor] = []
        # Whether parameters get the captured gradients themselves, or copies.
        self._lends = True

    @classmethod
    def why_not(cls, device: Device) -> str:
        """Reason why the device's steps cannot be captured, which it knows of itself; empty if they can."""
        return device.why_not_captured

    @classmethod
    def begins(cls, wrapped: bool) -> int:
        """Index of the first captured step, after those of DDP that PyTorch requires to be eager."""
        return WARM_UP_WRAPPED if wrapped else 0

    def prepare(self, examples: Tensor, labels: Tensor) -> None:
        """Captures the passes for the shape of this batch. It needs no other rank: the passes before the
        capture run without hooks, and a capture submits no work."""
        self._examples, self._labels = examples.clone(), labels.clone()
        capture = self.passes.device.capture()
        for _ in range(WARM_UP):
            capture.warm_up(self._alone)
        capture.record(self._with_hooks if self.is_wrapped else self._alone)
        self._capture = capture

    def moved(self, examples: Tensor, labels: Tensor) -> None:
        """Captures again, because the tensors have moved. From now on each step returns copies of its
        gradients, because others may change them in place."""
        self._lends = False
        self.release()
        self.prepare(examples, labels)

    def step(self, examples: Tensor, labels: Tensor) -> Tensor:
        """Replays the captured step; one of a batch of another shape is eager, because a graph has one shape.

        The loss is a copy, because the next replay overwrites it. The gradients are those of the graph's own
        memory, unless others may change them.
        """
        if examples.shape != self._examples.shape:
            return super().step(examples, labels)
        assert self._capture is not None
        # Replays read what is at the captured addresses, so the batch is copied there, in the order of the
        # stream.
        self._examples.copy_(examples, non_blocking=True)
        self._labels.copy_(labels, non_blocking=True)
        self._capture.replay()
        for parameter, gradient in zip(self._parameters, self._gradients):
            parameter.grad = gradient if self._lends else torch.empty_like(parameter).copy_(gradient)
        return self._loss.clone()

    def release(self) -> None:
        """Frees the graph and its memory."""
        if self._capture is not None:
            self._capture.free()
        self._capture, self._gradients, self._examples = None, [], torch.empty(0)

    def _with_hooks(self) -> None:
        """One pass with the hooks of the wrapped network (DDP), which fill its buckets; only `backward` calls
        them, `torch.autograd.grad` does not."""
        self.passes.network.zero_grad(set_to_none=True)
        loss = self.passes.loss(self.module, self._examples, self._labels)
        self.passes.scaler.scale(loss).backward()
        self._gradients = [each.grad for each in self._parameters if each.grad is not None]
        self._loss = loss.detach()

    def _alone(self) -> None:
        """One pass without hooks, because those of Horovod would send gradients to other ranks."""
        loss = self.passes.loss(self.bare, self._examples, self._labels)
        found = torch.autograd.grad(self.passes.scaler.scale(loss), self._parameters)
        self._gradients = [_laid_out(*each) for each in zip(found, self._parameters)]
        self._loss = loss.detach()


def _laid_out(gradient: Tensor, parameter: Tensor) -> Tensor:
    """The gradient with the strides of its parameter. `backward` sees to that, `torch.autograd.grad` does
    not; with other strides a fused optimizer raises on CUDA, and computes wrong weights on a CPU."""
    if has_layout_of(gradient, parameter):
        return gradient
    return torch.empty_like(parameter).copy_(gradient)
