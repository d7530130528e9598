"""Convolutions: products of a kernel with every window of the image.

Closed forms: y elements out. An output element reads one kernel of one group, and each of the two gradients
is the same set of products, summed along another axis. A bias is added to every element out (y); its gradient
is the sum of theirs (y), and what the layer reads has no part in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod

from nas.layers.layer import Layer
from nas.layers.shapes import Shape, ShapeError, image, refuse_no_sizes
from nas.layers.windows import LATER, Convolution, Sides, Windowed
from nas.ops import Cost, Ops

TOO_FEW_CHANNELS = 16
"""On a CPU, oneDNN's gradient of the weights of a strided 1x1 convolution writes past its scratch memory
where the layer reads fewer channels than a vector register holds numbers of 32 bits: on AVX2 8, on AVX-512
(bf16 too) and on the widest SVE it knows 16. Such a gradient is wrong, hangs, or kills the process:
https://github.com/uxlfoundation/oneDNN/issues/6035"""


@dataclass(frozen=True, repr=False)
class Conv2d(Convolution, Layer):
    """A convolution. Weight: (channels, channels in / groups, kernel, kernel); bias: (channels,)."""

    mixes_channels = True
    centred = True
    channels: int
    kernel: Sides = 3
    stride: Sides = 1
    groups: int = 1
    padding: Sides | None = field(default=None, kw_only=True, metadata=LATER)
    bias: bool = field(default=False, kw_only=True, metadata=LATER)

    def __post_init__(self) -> None:
        refuse_no_sizes(self, "channels", "groups")
        self.settle()
        if self.channels % self.groups:
            raise ShapeError(f"Conv2d: {self.channels} channels in {self.groups} groups")

    def shape(self, *inputs: Shape) -> Shape:
        (channels, *area) = image(self, inputs)
        if channels % self.groups:
            raise ShapeError(f"Conv2d: {channels} channels in, {self.groups} groups")
        return (self.channels, *[along.num for along in self.windows(area)])

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        weight = {"weight": (self.channels, inputs[0][0] // self.groups, *self.kernels)}
        return {**weight, "bias": (self.channels,)} if self.bias else weight

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        y = prod(self.shape(*inputs))
        products = Ops(mac=prod(self.kernels) * (inputs[0][0] // self.groups) * y)
        rows = {"conv": Cost(products, products, products, products)}
        if self.bias:
            sums = Ops(add=y)
            rows["bias"] = Cost(forward=sums, weight_grad=sums, evaluate=sums)
        return rows

    def widened(self, width: int) -> Conv2d:
        return replace(self, channels=width)

    def convolution(self, *inputs: Shape) -> Conv2d:
        return self


@dataclass(frozen=True, repr=False)
class DepthwiseConv2d(Windowed, Layer):
    """A convolution of every channel by itself (Howard et al., "MobileNets", 2017).

    It is as wide as what it reads, so that it widens with it, and is otherwise the `Conv2d` with as many
    groups as channels. Weight: (channels, 1, kernel, kernel); bias: (channels,).
    """

    centred = True
    kernel: Sides = 3
    stride: Sides = 1
    padding: Sides | None = field(default=None, kw_only=True, metadata=LATER)
    bias: bool = field(default=False, kw_only=True, metadata=LATER)

    def __post_init__(self) -> None:
        self.settle()

    def shape(self, *inputs: Shape) -> Shape:
        return self.convolution(*inputs).shape(*inputs)

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        return self.convolution(*inputs).weights(*inputs)

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        return self.convolution(*inputs).costs(*inputs)

    def convolution(self, *inputs: Shape) -> Conv2d:
        channels = image(self, inputs)[0]
        return Conv2d(channels, self.kernel, self.stride, channels, padding=self.padding, bias=self.bias)
