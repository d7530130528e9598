"""Convolutions: products of a kernel with every window of the image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from nas.layers.layer import Layer
from nas.layers.shapes import Shape, ShapeError, image, refuse_no_sizes
from nas.layers.windows import Convolution, refuse_even, windows
from nas.ops import Cost, Ops


@dataclass(frozen=True)
class Conv2d(Convolution, Layer):
    """A convolution without bias. Weight: (channels, channels in / groups, kernel, kernel)."""

    mixes_channels = True
    channels: int
    kernel: int = 3
    stride: int = 1
    groups: int = 1

    def __post_init__(self) -> None:
        refuse_no_sizes(self, "channels", "kernel", "stride", "groups")
        refuse_even(self, self.kernel)
        if self.channels % self.groups:
            raise ShapeError(f"Conv2d: {self.channels} channels in {self.groups} groups")

    def shape(self, *inputs: Shape) -> Shape:
        (channels, *area) = image(self, inputs)
        if channels % self.groups:
            raise ShapeError(f"Conv2d: {channels} channels in, {self.groups} groups")
        return (self.channels, *windows(self, area, self.kernel, self.stride))

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        return {"weight": (self.channels, inputs[0][0] // self.groups, self.kernel, self.kernel)}

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        # Every output element reads one kernel of one group; each of the two gradients is the same
        # set of products, summed along another axis.
        taps = self.kernel * self.kernel * (inputs[0][0] // self.groups)
        products = Ops(mac=taps * prod(self.shape(*inputs)))
        return {"conv": Cost(products, products, products, products)}

    def widened(self, width: int) -> Conv2d:
        return replace(self, channels=width)

    def convolution(self, *inputs: Shape) -> Conv2d:
        return self


@dataclass(frozen=True)
class DepthwiseConv2d(Layer):
    """A convolution of every channel by itself, without bias (Howard et al., "MobileNets", 2017).

    It is as wide as what it reads, so that it widens with it, and is otherwise the `Conv2d` with as many
    groups as channels. Weight: (channels, 1, kernel, kernel).
    """

    kernel: int = 3
    stride: int = 1

    def __post_init__(self) -> None:
        refuse_no_sizes(self, "kernel", "stride")
        refuse_even(self, self.kernel)

    def shape(self, *inputs: Shape) -> Shape:
        return self.convolution(*inputs).shape(*inputs)

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        return self.convolution(*inputs).weights(*inputs)

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        return self.convolution(*inputs).costs(*inputs)

    def convolution(self, *inputs: Shape) -> Conv2d:
        channels = image(self, inputs)[0]
        return Conv2d(channels, self.kernel, self.stride, channels)
