"""Batch norm together with the addition of a residual and the ReLU that follow it.

Forward there is one pass over memory for the sums and one for the rest, and backward the same. Torch makes
passes of its own for the norm, the sum and the activation, and memory limits these layers on any device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from aiperf.engines.fused.backend import Activation, Backend
from aiperf.engines.fused.tensors import Unfit, for_readers, is_own, refuse_unfit, refuse_unlike, two


@dataclass(frozen=True, eq=False)
class Normalise:
    """A step of the plan: a batch norm of images (batch, channels, height, width), plus the residual, if
    there is one, and with an activation."""

    backend: Backend
    module: nn.BatchNorm2d
    activation: Activation = Activation.NOTHING
    readers: int = 1
    """Number of steps that read the result; each gets a tensor of its own."""

    def __post_init__(self) -> None:
        if not is_own(self.module):
            raise Unfit("a batch norm with another `forward`, as over a group, is not fused")

    def __call__(self, images: Tensor, residual: Tensor | None = None) -> Any:
        """The normalised images as one tensor, or as a tuple with one tensor for each reader. Raises Unfit,
        and ValueError as torch does."""
        norm = self.module
        self._refuse(images, residual)
        if torch.is_grad_enabled():
            found = _Normalised.apply(images, residual, norm.weight, norm.bias, self)  # type: ignore[no-untyped-call]
        else:
            out, *_ = self.backend.normalise(images, residual, norm, self.activation)
            found = (out,) * self.readers
        return found if self.readers > 1 else found[0]

    def _refuse(self, images: Tensor, residual: Tensor | None) -> None:
        """Raises Unfit for what the kernels do not support, and ValueError as torch does for one value per
        channel."""
        norm = self.module
        refuse_unfit(images, self.backend)
        if residual is not None:
            refuse_unfit(residual, self.backend)
            refuse_unlike(images, residual, images.shape)
        if norm.weight.dtype != torch.float32:
            raise Unfit(f"a fused batch norm has parameters in fp32, not in {norm.weight.dtype}")
        if norm.training and images.numel() // images.shape[1] < 2:
            raise ValueError(
                f"a batch norm learns from more than 1 value of a channel, not {tuple(images.shape)}"
            )
        if not norm.training and torch.is_grad_enabled():
            raise Unfit("a fused batch norm has no gradient through statistics that stay as they are")


class _Normalised(torch.autograd.Function):
    """The merged layers as one operation of autograd."""

    @staticmethod
    def forward(
        ctx: Any, images: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, step: Normalise
    ) -> tuple[Tensor, ...]:
        out, statistics, cut = step.backend.normalise(images, residual, step.module, step.activation)
        ctx.save_for_backward(images, cut, weight, bias, statistics)
        # The gradient of a reader that has none is then None, and not a tensor of zeros to be added.
        ctx.set_materialize_grads(False)
        ctx.step, ctx.has_residual = step, residual is not None
        return for_readers(out, step.readers)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients as in Ioffe and Szegedy, "Batch Normalization", ICML 2015, section 3."""
        given = two(gradients)
        if given is None:
            return (None,) * 5
        images, cut, weight, bias, statistics = ctx.saved_tensors
        first, second = given
        step: Normalise = ctx.step
        # Without an activation that masks it, the residual's gradient is that of the sum.
        keeps = bool(ctx.has_residual and (step.activation or second is not None))
        to_images, kept, to_weight, to_bias = step.backend.normalise_backward(
            first, second, images, cut, (weight, bias), statistics, step.activation, keeps
        )
        to_residual = kept if keeps else first if ctx.has_residual else None
        return to_images, to_residual, to_weight, to_bias, None
