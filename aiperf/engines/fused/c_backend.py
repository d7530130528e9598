"""Fused steps on a CPU, by the kernels in C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from aiperf.engines.fused.backend import Activation, Backend
from aiperf.engines.fused.kernels import call, hold_memory
from aiperf.engines.fused.tensors import address, empty_like


class InC(Backend):
    """Calls kernels.c. The process keeps freed memory once a network was fused (`hold_memory`)."""

    kind: ClassVar[str] = "cpu"
    formats: ClassVar[tuple[torch.dtype, ...]] = (torch.float32, torch.bfloat16)
    helps_onednn: ClassVar[bool] = True
    compiles: ClassVar[bool] = False

    def begin(self) -> None:
        hold_memory()

    def normalise(
        self, images: Tensor, residual: Tensor | None, module: nn.BatchNorm2d, activation: Activation
    ) -> tuple[Tensor, Tensor]:
        out, channels = empty_like(images), images.shape[1]
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
            *_addresses((module.weight, module.bias, module.running_mean, module.running_var)),
            address(statistics) if module.training else None,
            module.momentum,
            module.eps,
        )
        return out, statistics

    def normalise_backward(
        self,
        first: Tensor,
        second: Tensor | None,
        images: Tensor,
        out: Tensor | None,
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
            *_addresses((first, second, images, out, kept, to_images)),
            images.numel() // channels,
            channels,
            images.dtype == torch.bfloat16,
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


IN_C = InC()


def _addresses(tensors: Sequence[Tensor | None]) -> list[int | None]:
    return [address(tensor) for tensor in tensors]


def _sizes(images: Tensor) -> tuple[int, int, int, bool]:
    """Number of images, pixels per image, channels, and whether the images are bf16."""
    batch, channels, height, width = images.shape
    return batch, height * width, channels, images.dtype == torch.bfloat16
