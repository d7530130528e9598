"""Fused steps on a CPU, by the kernels in C. Tensors are passed by address and size, so they have to be
contiguous in the layout that `backend.py` states.

The order of the arguments is that of the functions in kernels.c; `kernels.py` has their types.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from aiperf.engines.fused.backend import MOST_READERS, Activation, Backend
from aiperf.engines.fused.kernels import call, hold_memory
from aiperf.engines.fused.tensors import address, empty_like
from nas.layers import BatchNorm, Conv2d, Layer, Product, RMSNorm

WIDE_POSITIONS = 256
"""Torch's backward pass of attention in bf16 takes longer than in fp32 over so few positions. Heads of 16, 32
and 64 features over 256 positions took 2.5, 1.4 and 1.1 times as long in bf16 with AMX, and 2.8, 2.2 and 1.6
times without; heads of 64 over 1,024 positions 0.65 and 1.2 times."""


class InC(Backend):
    """Calls kernels.c. The process keeps freed memory once a network was fused (`hold_memory`)."""

    kind: ClassVar[str] = "cpu"
    formats: ClassVar[tuple[torch.dtype, ...]] = (torch.float32, torch.bfloat16)
    layers: ClassVar[tuple[type[Layer], ...]] = (BatchNorm, Conv2d, RMSNorm, Product)
    helps_onednn: ClassVar[bool] = True
    compiles: ClassVar[bool] = False
    widest_row: ClassVar[int] = sys.maxsize
    wide_positions: ClassVar[int] = WIDE_POSITIONS

    def begin(self) -> None:
        hold_memory()

    def normalise(
        self,
        images: Tensor,
        residual: Tensor | None,
        norms: Sequence[nn.BatchNorm2d],
        activation: Activation,
    ) -> tuple[Tensor, list[Tensor], Tensor | None]:
        module, *of_residual = norms
        found: list[Tensor] = []
        if residual is not None and of_residual:
            residual, found, _ = self.normalise(residual, None, of_residual, Activation.NOTHING)
        out, channels = empty_like(images), images.shape[1]
        statistics = module.weight.new_empty(2 * channels)
        call(
            "batchnorm_forward",
            address(images),
            address(residual),
            address(out),
            images.numel() // channels,
            channels,
            _is_half(images),
            activation,
            *_addresses((module.weight, module.bias, module.running_mean, module.running_var)),
            address(statistics) if module.training else None,
            module.momentum,
            module.eps,
        )
        # What a ReLU without a residual cuts off is computed again from the images, which saves reading the
        # output.
        again = activation is Activation.RELU and residual is None
        return out, [statistics, *found], None if again or not activation else out

    def normalise_backward(
        self,
        first: Tensor,
        second: Tensor | None,
        images: Tensor,
        cut: Tensor | None,
        module: tuple[Tensor, Tensor],
        statistics: Tensor,
        activation: Activation,
        keeps: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        to_images, kept = empty_like(images), empty_like(images) if keeps else None
        to_weight, to_bias = (torch.empty_like(each) for each in module)
        channels = images.shape[1]
        call(
            "batchnorm_backward",
            *_addresses((first, second, images, cut, kept, to_images)),
            images.numel() // channels,
            channels,
            _is_half(images),
            activation,
            *_addresses((*module, statistics, to_weight, to_bias)),
        )
        return to_images, kept, to_weight, to_bias

    def gate(self, images: Tensor, gates: Tensor) -> Tensor:
        out = empty_like(images)
        call("gate_forward", *_addresses((images, gates, out)), *_sizes(images))
        return out

    def gate_backward(
        self, first: Tensor, second: Tensor | None, images: Tensor, gates: Tensor
    ) -> tuple[Tensor, Tensor]:
        to_images, to_gates = empty_like(images), torch.empty_like(gates)
        tensors = first, second, images, gates, to_images, to_gates
        call("gate_backward", *_addresses(tensors), *_sizes(images))
        return to_images, to_gates

    def mean(self, images: Tensor) -> Tensor:
        out = images.new_empty(images.shape[:2])
        call("mean_forward", *_addresses((images, out)), *_sizes(images))
        return out

    def mean_backward(self, gradient: Tensor, shape: torch.Size) -> Tensor:
        out = torch.empty(shape, dtype=gradient.dtype, memory_format=torch.channels_last)
        call("mean_backward", *_addresses((gradient, out)), *_sizes(out))
        return out

    def normalise_rows(
        self, values: Tensor, weight: Tensor, epsilon: float, format: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        channels = values.shape[-1]
        out = torch.empty_like(values, dtype=format)
        inverse = weight.new_empty(values.numel() // channels)
        sizes = len(inverse), channels, _is_half(values), _is_half(out)
        call("rms_forward", *_addresses((values, weight, out, inverse)), *sizes, epsilon)
        return out, inverse

    def normalise_rows_backward(
        self, gradients: Sequence[Tensor], values: Tensor, weight: Tensor, inverse: Tensor
    ) -> tuple[Tensor, Tensor]:
        found = torch.empty_like(values), torch.empty_like(weight)
        # kernels.c takes MOST_READERS addresses, and skips those that are null.
        padded = [*gradients, *[None] * (MOST_READERS - len(gradients))]
        sizes = len(inverse), values.shape[-1], _is_half(values), _is_half(gradients[0])
        call("rms_backward", *_addresses((*padded, values, weight, inverse, *found)), *sizes)
        return found

    def turn(self, values: Tensor, turns: Tensor, width: int, format: torch.dtype, back: bool) -> Tensor:
        out = torch.empty_like(values, dtype=format)
        batch, positions, channels = values.shape
        sizes = batch * positions, channels, width, positions
        call("turn", *_addresses((values, turns, out)), *sizes, _is_half(values), _is_half(out), back)
        return out

    def silu_product(self, z: Tensor, x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        call("silu_product", *_addresses((None, z, x, out, None)), x.numel(), _is_half(x))
        return out

    def silu_product_backward(self, gradient: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        to_z, to_x = torch.empty_like(z), torch.empty_like(x)
        call("silu_product", *_addresses((gradient, z, x, to_x, to_z)), x.numel(), _is_half(x))
        return to_z, to_x


IN_C = InC()


def _addresses(tensors: Sequence[Tensor | None]) -> list[int | None]:
    """Addresses for the kernels; None becomes a null pointer, which says that there is no such tensor."""
    return [address(tensor) for tensor in tensors]


def _is_half(tensor: Tensor) -> bool:
    """Whether the kernels read 16-bit numbers: bf16 and fp32 are the only formats here."""
    return tensor.dtype == torch.bfloat16


def _sizes(images: Tensor) -> tuple[int, int, int, bool]:
    """Number of images, pixels per image, channels, and whether the images are bf16."""
    batch, channels, height, width = images.shape
    return batch, height * width, channels, _is_half(images)
