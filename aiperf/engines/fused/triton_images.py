"""Operators of torch on images (batch, channels, height, width) with the channels last, by kernels in Triton.

Sums are made by two kernels: the second adds up what the programs of the first have written. Each operator
has a fake kernel, which only allocates its results. None has a formula of its gradient: `image_steps.py`
calls both passes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from aiperf.engines.fused.tensors import empty_like
from aiperf.engines.fused.triton_launch import (
    FEW_CHANNELS,
    PARTS,
    Tiling,
    by_image,
    for_each,
    for_sums,
    launch,
    operator,
)


@operator(
    "batch_statistics",
    "(Tensor images, Tensor(a!) running_mean, Tensor(b!) running_variance, float momentum, float epsilon) "
    "-> Tensor",
    ("running_mean", "running_variance"),
)
def statistics(
    images: Tensor, running_mean: Tensor, running_variance: Tensor, momentum: float, epsilon: float
) -> Tensor:
    """Mean and 1 / deviation of each channel of the batch, (2 · channels,). It moves the running statistics
    in place."""
    tiles, channels = for_sums(images), images.shape[1]
    partial, found = _partial(tiles, images), running_mean.new_empty(2 * channels)
    launch("sum_images", tiles.programs, images, partial, *tiles.sizes, **tiles.constants)
    launch(
        "finish_statistics",
        -(-channels // FEW_CHANNELS),
        partial,
        found,
        running_mean,
        running_variance,
        tiles.rows,
        tiles.chunk,
        channels,
        momentum,
        epsilon,
        PARTS=PARTS,
        CHANNELS=FEW_CHANNELS,
    )
    return found


@statistics.register_fake
def _(
    images: Tensor, running_mean: Tensor, running_variance: Tensor, momentum: float, epsilon: float
) -> Tensor:
    return running_mean.new_empty(2 * images.shape[1])


@operator(
    "batchnorm",
    "(Tensor images, Tensor? residual, Tensor[] norm, Tensor[] of_residual, float[] epsilons, int "
    "activation, bool learns) -> (Tensor, Tensor)",
)
def normalise(
    images: Tensor,
    residual: Tensor | None,
    norm: list[Tensor],
    of_residual: list[Tensor],
    epsilons: list[float],
    activation: int,
    learns: bool,
) -> tuple[Tensor, Tensor]:
    """A batch norm, and the bits of what its activation cut off if it `learns`. `norm` are mean, 1 /
    deviation, weight and bias; if it does not learn, running mean and running variance in place of the first
    two. `of_residual` are those of the residual's own batch norm, empty if it has none."""
    out, bits, tiles = empty_like(images), _bits(images, residual, activation, learns), _of_each(images)
    launch(
        "normalise",
        tiles.programs,
        images,
        residual,
        out,
        bits if len(bits) else None,
        *norm,
        *(of_residual or (None,) * len(norm)),
        *tiles.sizes,
        epsilons[0],
        epsilons[-1],
        **tiles.constants,
        ACTIVATION=activation,
        HAS_RESIDUAL=residual is not None,
        OF_NORM=bool(of_residual),
        MARKS=len(bits) > 0,
        OF_VARIANCE=not learns,
    )
    return out, bits


@normalise.register_fake
def _(
    images: Tensor,
    residual: Tensor | None,
    norm: list[Tensor],
    of_residual: list[Tensor],
    epsilons: list[float],
    activation: int,
    learns: bool,
) -> tuple[Tensor, Tensor]:
    return empty_like(images), _bits(images, residual, activation, learns)


def _bits(images: Tensor, residual: Tensor | None, activation: int, learns: bool) -> Tensor:
    """Memory for the bits of what an activation behind a residual cuts off. Without a residual that is
    computed again from the images, and there are none."""
    is_marked = learns and residual is not None and activation
    return images.new_empty(_of_each(images).bytes_of_bits if is_marked else 0, dtype=torch.uint8)


def _of_each(images: Tensor) -> Tiling:
    """The tiling of the kernels that make no sums. Its tiles are those of `for_sums`, so that both find the
    same bits; its chunks are shorter."""
    channels = images.shape[1]
    return for_each(images.numel() // channels, channels)


@operator(
    "batchnorm_backward",
    "(Tensor first, Tensor? second, Tensor images, Tensor? bits, Tensor weight, Tensor bias, Tensor "
    "statistics, int activation, bool keeps) -> (Tensor, Tensor, Tensor, Tensor)",
)
def learn_backward(
    first: Tensor,
    second: Tensor | None,
    images: Tensor,
    bits: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    statistics: Tensor,
    activation: int,
    keeps: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the images, of the sum before the activation if it `keeps` it (else empty), of weight and
    bias. If it is kept, the second kernel reads it in place of the readers' gradients and of what cut them
    off."""
    gradient, kept, to_weight, to_bias = _gradients(images, weight, keeps)
    tiles, channels = for_sums(images), images.shape[1]
    partial = _partial(tiles, images)
    assert bits is None or keeps, "the gradient of a residual behind an activation is kept"
    cut = _cut(activation, bits)
    launch(
        "sum_gradients",
        tiles.programs,
        first,
        second,
        images,
        bits,
        kept if keeps else None,
        partial,
        statistics,
        weight,
        bias,
        *tiles.sizes,
        **tiles.constants,
        ACTIVATION=activation,
        HAS_SECOND=second is not None,
        CUT=cut,
        KEEPS=keeps,
    )
    launch(
        "finish_gradients",
        -(-channels // FEW_CHANNELS),
        partial,
        to_bias,
        to_weight,
        tiles.chunks,
        channels,
        PARTS=PARTS,
        CHANNELS=FEW_CHANNELS,
    )
    tiles = _of_each(images)
    launch(
        "to_images",
        tiles.programs,
        kept if keeps else first,
        None if keeps else second,
        images,
        gradient,
        statistics,
        weight,
        bias,
        to_weight,
        to_bias,
        *tiles.sizes,
        **tiles.constants,
        ACTIVATION=activation,
        HAS_SECOND=second is not None and not keeps,
        CUT=_cut(0, None) if keeps else cut,
    )
    return gradient, kept, to_weight, to_bias


@learn_backward.register_fake
def _(
    first: Tensor,
    second: Tensor | None,
    images: Tensor,
    bits: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    statistics: Tensor,
    activation: int,
    keeps: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _gradients(images, weight, keeps)


def _gradients(images: Tensor, weight: Tensor, keeps: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Memory for what a backward pass returns; an operator returns no None, so what is not kept is empty."""
    kept = empty_like(images) if keeps else images.new_empty(0)
    return empty_like(images), kept, torch.empty_like(weight), torch.empty_like(weight)


def _partial(tiles: Tiling, images: Tensor) -> Tensor:
    """Memory for two fp32 sums of each channel from each program that makes sums."""
    return torch.empty(2, tiles.chunks, tiles.channels, dtype=torch.float32, device=images.device)


def _cut(activation: int, bits: Tensor | None) -> int:
    """By which of the constants of the kernels it is known what the activation cut off."""
    return 0 if not activation else 1 if bits is None else 2


@operator(
    "gate",
    "(Tensor images, Tensor gates) -> Tensor",
)
def gate(images: Tensor, gates: Tensor) -> Tensor:
    """Images times gates (batch, channels)."""
    out, tiles = empty_like(images), by_image(images)
    launch("gate", tiles.programs, images, gates, out, *tiles.sizes, **tiles.constants)
    return out


@gate.register_fake
def _(images: Tensor, gates: Tensor) -> Tensor:
    return empty_like(images)


@operator(
    "gate_backward",
    "(Tensor first, Tensor? second, Tensor images, Tensor gates) -> (Tensor, Tensor)",
)
def gate_backward(
    first: Tensor, second: Tensor | None, images: Tensor, gates: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of images and gates, by one pass: a program reads all pixels of an image, so the sum of a
    gate needs no second kernel."""
    found, tiles = (empty_like(images), torch.empty_like(gates)), by_image(images)
    launch(
        "gate_gradients",
        tiles.programs,
        first,
        second,
        images,
        gates,
        *found,
        *tiles.sizes,
        **tiles.constants,
        HAS_SECOND=second is not None,
    )
    return found


@gate_backward.register_fake
def _(first: Tensor, second: Tensor | None, images: Tensor, gates: Tensor) -> tuple[Tensor, Tensor]:
    return empty_like(images), torch.empty_like(gates)


@operator(
    "mean",
    "(Tensor images) -> Tensor",
)
def mean(images: Tensor) -> Tensor:
    """The mean over the pixels of each image, (batch, channels), in the format of the images."""
    out, tiles = images.new_empty(images.shape[:2]), by_image(images)
    launch("mean", tiles.programs, images, out, *tiles.sizes, **tiles.constants)
    return out


@mean.register_fake
def _(images: Tensor) -> Tensor:
    return images.new_empty(images.shape[:2])


@operator(
    "mean_backward",
    "(Tensor gradient, int[] shape) -> Tensor",
)
def mean_backward(gradient: Tensor, shape: list[int]) -> Tensor:
    """The gradient of images with that shape, whose own is (batch, channels)."""
    out = _images_like(gradient, shape)
    tiles = by_image(out)
    launch("mean_gradient", tiles.programs, gradient, out, *tiles.sizes, **tiles.constants)
    return out


@mean_backward.register_fake
def _(gradient: Tensor, shape: list[int]) -> Tensor:
    return _images_like(gradient, shape)


def _images_like(gradient: Tensor, shape: list[int]) -> Tensor:
    """Memory for images of a shape, in the format and on the device of a gradient."""
    return torch.empty(shape, dtype=gradient.dtype, device=gradient.device, memory_format=torch.channels_last)
