"""Batch norm together with the addition of a residual and the ReLU that follow it.

Forward there is one pass over memory for the sums and one for the rest, and backward the same. Torch makes
passes of its own for the norm, the sum and the activation, and memory limits these layers on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor, nn

from aiperf.engines.fused.kernels import call
from aiperf.engines.fused.tensors import (
    Unfit,
    address,
    empty_like,
    for_readers,
    is_own,
    refuse_unfit,
    refuse_unlike,
    two,
)


class Activation(IntEnum):
    """Activation after a batch norm; the values are those in kernels.c."""

    NOTHING = 0
    RELU = 1
    RELU6 = 2


@dataclass(frozen=True, eq=False)
class Normalise:
    """A step of the plan: a batch norm of images (batch, channels, height, width), plus the residual, if
    there is one, and with an activation."""

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
            found = _Normalised.apply(
                images, residual, norm.weight, norm.bias, norm, self.activation, self.readers
            )  # type: ignore[no-untyped-call]
        else:
            found = (_forward(images, residual, norm, self.activation, None),) * self.readers
        return found if self.readers > 1 else found[0]

    def _refuse(self, images: Tensor, residual: Tensor | None) -> None:
        """Raises Unfit for what the kernels do not support, and ValueError as torch does for one value per
        channel."""
        norm = self.module
        refuse_unfit(images)
        if residual is not None:
            refuse_unfit(residual)
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
        ctx: Any,
        images: Tensor,
        residual: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        module: nn.BatchNorm2d,
        activation: Activation,
        readers: int,
    ) -> tuple[Tensor, ...]:
        # Mean and 1 / deviation of each channel, for the backward pass: (2 · channels,).
        statistics = weight.new_empty(2 * len(weight))
        out = _forward(images, residual, module, activation, statistics)
        # For a ReLU without a residual, the sign is computed again from the images, which saves reading the
        # output.
        by_images = residual is None and activation is Activation.RELU
        kept = None if by_images or not activation else out
        ctx.save_for_backward(images, kept, weight, bias, statistics)
        # The gradient of a reader that has none is then None, and not a tensor of zeros to be added.
        ctx.set_materialize_grads(False)
        ctx.activation, ctx.has_residual = activation, residual is not None
        return for_readers(out, readers)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients as in Ioffe and Szegedy, "Batch Normalization", ICML 2015, section 3."""
        given = two(gradients)
        if given is None:
            return (None,) * 7
        images, out, weight, bias, statistics = ctx.saved_tensors
        first, second = given
        to_images, to_weight, to_bias = empty_like(images), torch.empty_like(weight), torch.empty_like(bias)
        # Without an activation that masks it, the residual's gradient is that of the sum.
        masked = ctx.has_residual and (ctx.activation or second is not None)
        to_residual = empty_like(images) if masked else first if ctx.has_residual else None
        channels = images.shape[1]
        call(
            "batchnorm_backward",
            address(first),
            address(second),
            address(images),
            address(out),
            address(to_residual) if masked else None,
            address(to_images),
            images.numel() // channels,
            channels,
            images.dtype == torch.bfloat16,
            ctx.activation,
            address(weight),
            address(bias),
            address(statistics),
            address(to_weight),
            address(to_bias),
        )
        return to_images, to_residual, to_weight, to_bias, None, None, None


def _forward(
    images: Tensor,
    residual: Tensor | None,
    module: nn.BatchNorm2d,
    activation: Activation,
    statistics: Tensor | None,
) -> Tensor:
    """Computes the output; in training it also updates the running statistics. Mean and 1 / deviation are
    written to `statistics`."""
    out, channels = empty_like(images), images.shape[1]
    if module.training and statistics is None:
        statistics = module.weight.new_empty(2 * channels)
    call(
        "batchnorm_forward",
        address(images),
        address(residual),
        address(out),
        images.numel() // channels,
        channels,
        images.dtype == torch.bfloat16,
        activation,
        *_addresses((module.weight, module.bias, module.running_mean, module.running_var, statistics)),
        module.momentum,
        module.eps,
    )
    return out


def _addresses(tensors: Sequence[Tensor | None]) -> list[int | None]:
    return [address(tensor) for tensor in tensors]
