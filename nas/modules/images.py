"""The modules of images, of vectors, and of what takes every element by itself. Images are (batch, channels,
height, width), usually with the channels last in memory, vectors (batch, features)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d, pad

from nas.layers import (
    AdaptiveAveragePool,
    Add,
    AveragePool,
    BatchNorm,
    ChannelNorm,
    ChannelShuffle,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Dropout,
    Flatten,
    Gate,
    GlobalPool,
    GroupNorm,
    HardSigmoid,
    HardSwish,
    Layer,
    MaxPool,
    ReLU,
    ReLU6,
    Shape,
    Upsample,
)
from nas.layers.norms import BATCH_NORM_EPSILON
from nas.modules.module_table import Sum, module_of

BATCH_NORM_MOMENTUM = 0.1
"""The weight of the newest batch in the running statistics: PyTorch's own value, and that of torchvision's
and the published ResNets."""


class _StridedPixels(nn.Conv2d):
    """A strided 1x1 convolution that oneDNN only sees without its stride: see TOO_FEW_CHANNELS."""

    def forward(self, images: Tensor) -> Tensor:
        if images.device.type == "cpu":
            # Pooling of windows of one pixel takes each stride-th pixel as it is. So does slicing, but its
            # gradient comes back with the channels first: a step of the digits' seed took 3 to 12 % longer.
            return conv2d(avg_pool2d(images, 1, self.stride), self.weight, self.bias)
        return super().forward(images)


class _Padded(nn.Conv2d):
    """A convolution whose padding is part of its image."""

    margin = (0, 0)
    """Rows and columns of zeros that are added on each side, set when the module is made."""

    def forward(self, images: Tensor) -> Tensor:
        height, width = self.margin
        return super().forward(pad(images, (width, width, height, height)))


class _Concatenation(nn.Module):
    """Joins images along their channels."""

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.cat(inputs, dim=1)


class _Mean(nn.Module):
    """Images (batch, channels, height, width) to the means of their channels, (batch, channels)."""

    def forward(self, images: Tensor) -> Tensor:
        return images.mean(dim=(2, 3))


class _ChannelNorm(nn.LayerNorm):
    """A layer norm of images. With the channels last in memory both permutations are views."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _Shuffle(nn.Module):
    """As `torch.nn.ChannelShuffle`, which would lay out its images with the channels first."""

    def __init__(self, num_groups: int) -> None:
        super().__init__()
        self.num_groups = num_groups

    def forward(self, images: Tensor) -> Tensor:
        runs = torch.unflatten(images.permute(0, 2, 3, 1), 3, (self.num_groups, -1))
        return runs.transpose(3, 4).flatten(3).permute(0, 3, 1, 2)


class _Gate(nn.Module):
    """Images times 2 · sigmoid(z), with z (batch, channels). The factor is 1 for z = 0."""

    def forward(self, images: Tensor, z: Tensor) -> Tensor:
        return images * (2 * torch.sigmoid(z))[:, :, None, None]


@module_of.register
def _(layer: Conv2d, *inputs: Shape) -> nn.Module:
    how = layer.executed(*inputs)
    # `Executed` says why torch is asked in one of three ways.
    kind = _StridedPixels if how.by_pixels else nn.Conv2d if how.margin is None else _Padded
    module = kind(
        inputs[0][0],
        layer.channels,
        layer.kernels,
        how.stride,
        how.padding,
        layer.dilations,
        groups=layer.groups,
        bias=layer.bias,
    )
    if isinstance(module, _Padded) and how.margin is not None:
        module.margin = how.margin
    return module


@module_of.register
def _(layer: DepthwiseConv2d, *inputs: Shape) -> nn.Module:
    return module_of(layer.convolution(*inputs), *inputs)


@module_of.register
def _(layer: BatchNorm, *inputs: Shape) -> nn.Module:
    module = nn.BatchNorm2d(inputs[0][0], BATCH_NORM_EPSILON, BATCH_NORM_MOMENTUM)
    # It matters only without a momentum, and counting is one more kernel a layer and step.
    module.num_batches_tracked = None
    return module


MODULES: Mapping[type[Layer], Callable[..., nn.Module]] = {
    Dense: lambda layer, read: nn.Linear(read[0], layer.features, bias=layer.bias),
    GroupNorm: lambda layer, read: nn.GroupNorm(layer.num_groups, read[0], layer.epsilon),
    ChannelNorm: lambda layer, read: _ChannelNorm(read[0], layer.epsilon),
    ReLU: lambda layer, read: nn.ReLU(),
    ReLU6: lambda layer, read: nn.ReLU6(),
    HardSwish: lambda layer, read: nn.Hardswish(),
    HardSigmoid: lambda layer, read: nn.Hardsigmoid(),
    Dropout: lambda layer, read: nn.Dropout(layer.rate),
    MaxPool: lambda layer, read: nn.MaxPool2d(
        layer.kernels, layer.strides, layer.paddings, ceil_mode=layer.ceil_mode
    ),
    AveragePool: lambda layer, read: nn.AvgPool2d(
        layer.kernels, layer.strides, layer.paddings, layer.ceil_mode
    ),
    AdaptiveAveragePool: lambda layer, read: nn.AdaptiveAvgPool2d(layer.size),
    GlobalPool: lambda layer, read: _Mean(),
    Add: lambda layer, *reads: Sum(),
    Concat: lambda layer, *reads: _Concatenation(),
    Gate: lambda layer, *reads: _Gate(),
    Flatten: lambda layer, read: nn.Flatten(),
    ChannelShuffle: lambda layer, read: _Shuffle(layer.num_groups),
    Upsample: lambda layer, read: nn.Upsample(scale_factor=layer.factor),
}
"""Modules that one call makes, from the layer and the shapes that it reads."""

for kind, make in MODULES.items():
    module_of.register(kind, make)
