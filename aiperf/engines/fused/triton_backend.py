"""Fused steps on NVIDIA's and AMD's devices by kernels in Triton. Triton itself is imported when the first
kernel is launched (`triton_launch.py`), so this module can be imported everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from aiperf.device.dynamo import load_dynamo
from aiperf.engines.fused import triton_images, triton_sequences
from aiperf.engines.fused.backend import Activation, Backend
from aiperf.engines.fused.triton_launch import WIDEST_ROW
from nas.layers import BatchNorm, Layer, Product, RMSNorm


class InTriton(Backend):
    """Calls operators of torch, which launch kernels in Triton on torch's current stream. `kind` is "cuda"
    for AMD's devices too, as torch names them."""

    kind: ClassVar[str] = "cuda"
    formats: ClassVar[tuple[torch.dtype, ...]] = (torch.float32, torch.bfloat16, torch.float16)
    layers: ClassVar[tuple[type[Layer], ...]] = (BatchNorm, RMSNorm, Product)
    helps_onednn: ClassVar[bool] = False
    compiles: ClassVar[bool] = True
    widest_row: ClassVar[int] = WIDEST_ROW
    wide_positions: ClassVar[int] = 0

    def begin(self) -> None:
        load_dynamo()  # before torch does, at the first call of an operator (torch/_library/custom_ops.py)

    def normalise(
        self,
        images: Tensor,
        residual: Tensor | None,
        norms: Sequence[nn.BatchNorm2d],
        activation: Activation,
    ) -> tuple[Tensor, list[Tensor], Tensor | None]:
        running, learns = [(norm.running_mean, norm.running_var) for norm in norms], norms[0].training
        statistics: list[Tensor] = [
            triton_images.statistics(read, *moved, norm.momentum, norm.eps)
            for read, moved, norm in zip((images, residual), running, norms)
            if learns
        ]
        used = [each.chunk(2) for each in statistics] if learns else running
        vectors = [[*pair, norm.weight, norm.bias] for pair, norm in zip(used, norms)]
        of_residual = vectors[1] if len(norms) > 1 else []
        epsilons = [norm.eps for norm in norms]
        out, bits = triton_images.normalise(
            images, residual, vectors[0], of_residual, epsilons, activation, learns
        )
        return out, statistics, bits if len(bits) else None

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
        to_images, kept, to_weight, to_bias = triton_images.learn_backward(
            first, second, images, cut, *module, statistics, activation, keeps
        )
        return to_images, kept if keeps else None, to_weight, to_bias

    def gate(self, images: Tensor, gates: Tensor) -> Tensor:
        found: Tensor = triton_images.gate(images, gates)
        return found

    def gate_backward(
        self, first: Tensor, second: Tensor | None, images: Tensor, gates: Tensor
    ) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = triton_images.gate_backward(first, second, images, gates)
        return found

    def mean(self, images: Tensor) -> Tensor:
        found: Tensor = triton_images.mean(images)
        return found

    def mean_backward(self, gradient: Tensor, shape: torch.Size) -> Tensor:
        found: Tensor = triton_images.mean_backward(gradient, list(shape))
        return found

    def normalise_rows(
        self, values: Tensor, weight: Tensor, epsilon: float, format: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = triton_sequences.normalise(values, weight, epsilon, format)
        return found

    def normalise_rows_backward(
        self, gradients: Sequence[Tensor], values: Tensor, weight: Tensor, inverse: Tensor
    ) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = triton_sequences.normalise_backward(
            list(gradients), values, weight, inverse
        )
        return found

    def turn(self, values: Tensor, turns: Tensor, width: int, format: torch.dtype, back: bool) -> Tensor:
        found: Tensor = triton_sequences.turn(values, turns, width, format, back)
        return found

    def silu_product(self, z: Tensor, x: Tensor) -> Tensor:
        found: Tensor = triton_sequences.silu_product(z, x)
        return found

    def silu_product_backward(self, gradient: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = triton_sequences.silu_product_backward(gradient, z, x)
        return found


IN_TRITON = InTriton()
