"""Steps on images: the mean of each channel, a gate for each channel, and every stride-th pixel."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from aiperf.engines.fused.library import call
from aiperf.engines.fused.tensors import address, empty_like, for_readers, refuse_unfit, refuse_unlike, two


@dataclass(frozen=True, eq=False)
class Gated:
    """A step of the plan: images (batch, channels, height, width) times 2 · sigmoid(z), with z (batch,
    channels)."""

    readers: int = 1

    def __call__(self, images: Tensor, z: Tensor) -> Any:
        """The gated images as one tensor, or as a tuple with one tensor for each reader. Raises Unfit."""
        refuse_unfit(images)
        refuse_unlike(images, z, images.shape[:2])
        gates = 2 * torch.sigmoid(z)
        found = _Gating.apply(images, gates.contiguous(), self.readers)  # type: ignore[no-untyped-call]
        return found if self.readers > 1 else found[0]


@dataclass(frozen=True, eq=False)
class Mean:
    """A step of the plan: images (batch, channels, height, width) to means (batch, channels)."""

    def __call__(self, images: Tensor) -> Tensor:
        """Raises Unfit."""
        refuse_unfit(images)
        found: Tensor = _Averaging.apply(images)  # type: ignore[no-untyped-call]
        return found


@dataclass(frozen=True)
class Pixels:
    """A step of the plan: every stride-th pixel, for all strided 1x1 convolutions of the same images."""

    stride: tuple[int, int]

    def __call__(self, images: Tensor) -> Tensor:
        """Raises Unfit."""
        refuse_unfit(images)
        found: Tensor = _Pixels.apply(images, self.stride)  # type: ignore[no-untyped-call]
        return found


@dataclass(frozen=True, eq=False)
class OfPixels:
    """A step of the plan: a 1x1 convolution without its stride, on images from `Pixels`."""

    module: nn.Conv2d

    def __call__(self, images: Tensor) -> Tensor:
        for hook in self.module._forward_pre_hooks.values():  # dropout before the last layer
            (images,) = hook(self.module, (images,))
        return conv2d(images, self.module.weight, self.module.bias)


class _Gating(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, gates: Tensor, readers: int) -> tuple[Tensor, ...]:
        out = empty_like(images)
        call("gate_forward", address(images), address(gates), address(out), *_sizes(images))
        ctx.save_for_backward(images, gates)
        ctx.set_materialize_grads(False)
        return for_readers(out, readers)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        given = two(gradients)
        if given is None:
            return None, None, None
        images, gates = ctx.saved_tensors
        to_images, to_gates = empty_like(images), torch.empty_like(gates)
        addresses = [address(tensor) for tensor in (*given, images, gates, to_images, to_gates)]
        call("gate_backward", *addresses, *_sizes(images))
        return to_images, to_gates, None


class _Averaging(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        out = images.new_empty(images.shape[:2])
        call("mean_forward", address(images), address(out), *_sizes(images))
        ctx.shape = images.shape
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        gradient = gradients[0].contiguous()
        out = torch.empty(ctx.shape, dtype=gradient.dtype, memory_format=torch.channels_last)
        call("mean_backward", address(gradient), address(out), *_sizes(out))
        return out


class _Pixels(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, stride: tuple[int, int]) -> Tensor:
        batch, channels, height, width = images.shape
        few = (batch, channels, ceil(height / stride[0]), ceil(width / stride[1]))
        out = torch.empty(few, dtype=images.dtype, memory_format=torch.channels_last)
        ctx.shape, ctx.stride = images.shape, stride
        _copy_pixels(images, out, images.shape, stride, back=False)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient = gradients[0].contiguous(memory_format=torch.channels_last)
        out = torch.empty(ctx.shape, dtype=gradient.dtype, memory_format=torch.channels_last)
        _copy_pixels(gradient, out, ctx.shape, ctx.stride, back=True)
        return out, None


def _copy_pixels(
    source: Tensor, target: Tensor, shape: torch.Size, stride: tuple[int, int], back: bool
) -> None:
    batch, channels, height, width = shape
    sizes = batch, height, width, *stride, channels * source.element_size()
    call("pixels", address(source), address(target), *sizes, back)


def _sizes(images: Tensor) -> tuple[int, int, int, bool]:
    """Number of images, pixels per image, channels, and whether the images are bf16."""
    batch, channels, height, width = images.shape
    return batch, height * width, channels, images.dtype == torch.bfloat16
