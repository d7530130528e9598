"""Operators of torch on contiguous sequences (batch, positions, features), by kernels in Triton.

Each has a fake kernel, which only allocates its results. `sequence_steps.py` says which operator is the
backward pass of which.
"""

from __future__ import annotations

import torch
from torch import Tensor

from aiperf.engines.fused.backend import MOST_READERS
from aiperf.engines.fused.triton_launch import (
    FEW_CHANNELS,
    PARTS,
    Tiling,
    for_each,
    launch,
    operator,
    rows_for_each,
    rows_for_sums,
)


@operator("rms_norm", "(Tensor values, Tensor weight, float epsilon, ScalarType format) -> (Tensor, Tensor)")
def normalise(values: Tensor, weight: Tensor, epsilon: float, format: torch.dtype) -> tuple[Tensor, Tensor]:
    """An RMS norm in that format, and 1 / root mean square of each row (rows,) in fp32 for the backward
    pass."""
    tiles, (out, inverse) = rows_for_each(values), _normalised(values, weight, format)
    launch(
        "normalise_rows",
        tiles.programs,
        values,
        weight,
        out,
        inverse,
        *tiles.sizes,
        epsilon,
        **tiles.constants,
        num_warps=tiles.warps,
    )
    return out, inverse


@normalise.register_fake
def _(values: Tensor, weight: Tensor, epsilon: float, format: torch.dtype) -> tuple[Tensor, Tensor]:
    return _normalised(values, weight, format)


def _normalised(values: Tensor, weight: Tensor, format: torch.dtype) -> tuple[Tensor, Tensor]:
    """Memory for the normalised rows, and for 1 / root mean square of each."""
    rows = values.numel() // values.shape[-1]
    return torch.empty_like(values, dtype=format), weight.new_empty(rows)


@operator(
    "rms_norm_backward",
    "(Tensor[] gradients, Tensor values, Tensor weight, Tensor inverse) -> (Tensor, Tensor)",
)
def normalise_backward(
    gradients: list[Tensor], values: Tensor, weight: Tensor, inverse: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of values and weight. The weight's is a sum over all rows: each program writes that of its
    rows, and a second kernel adds them up in a fixed order."""
    gradient, to_weight = torch.empty_like(values), torch.empty_like(weight)
    tiles = rows_for_sums(values)
    partial = weight.new_empty(tiles.chunks, tiles.channels)
    readers = len(gradients)
    launch(
        "row_gradients",
        tiles.programs,
        *gradients,
        *[None] * (MOST_READERS - readers),
        values,
        weight,
        inverse,
        gradient,
        partial,
        *tiles.sizes,
        **tiles.constants,
        READERS=readers,
        num_warps=tiles.warps,
    )
    launch(
        "finish_rows",
        -(-tiles.channels // FEW_CHANNELS),
        partial,
        to_weight,
        tiles.chunks,
        tiles.channels,
        PARTS=PARTS,
        CHANNELS=FEW_CHANNELS,
    )
    return gradient, to_weight


@normalise_backward.register_fake
def _(gradients: list[Tensor], values: Tensor, weight: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(values), torch.empty_like(weight)


@operator("turn", "(Tensor values, Tensor turns, int width, ScalarType format, bool back) -> Tensor")
def turn(values: Tensor, turns: Tensor, width: int, format: torch.dtype, back: bool) -> Tensor:
    """Heads of `width` features, turned by the angles of their positions or `back`. The matrix has a row for
    each head of each position and a column for each pair of features."""
    out, tiles = torch.empty_like(values, dtype=format), for_each(values.numel() // width, width // 2)
    launch(
        "turn",
        tiles.programs,
        values,
        turns,
        out,
        *tiles.sizes,
        values.shape[-1] // width,
        values.shape[-2],
        **tiles.constants,
        BACK=back,
    )
    return out


@turn.register_fake
def _(values: Tensor, turns: Tensor, width: int, format: torch.dtype, back: bool) -> Tensor:
    return torch.empty_like(values, dtype=format)


@operator("silu_product", "(Tensor z, Tensor x) -> Tensor")
def silu_product(z: Tensor, x: Tensor) -> Tensor:
    """silu(z) · x, in the format of x."""
    out, tiles = torch.empty_like(x), _features(x)
    launch("silu_product", tiles.programs, z, x, out, *tiles.sizes, **tiles.constants)
    return out


@silu_product.register_fake
def _(z: Tensor, x: Tensor) -> Tensor:
    return torch.empty_like(x)


@operator("silu_product_backward", "(Tensor gradient, Tensor z, Tensor x) -> (Tensor, Tensor)")
def silu_product_backward(gradient: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of z and x, from a gradient of their shape."""
    found, tiles = (torch.empty_like(z), torch.empty_like(x)), _features(x)
    launch("silu_gradients", tiles.programs, gradient, z, x, *found, *tiles.sizes, **tiles.constants)
    return found


@silu_product_backward.register_fake
def _(gradient: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(z), torch.empty_like(x)


def _features(values: Tensor) -> Tiling:
    """The tiling of sequences whose numbers are independent of each other: a row is a position."""
    features = values.shape[-1]
    return for_each(values.numel() // features, features)
