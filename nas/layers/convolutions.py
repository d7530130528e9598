"""Convolutions: products of a kernel with every window of the image.

Closed forms: y elements out. An output element reads one kernel of one group, and each of the two gradients
is the same set of products, summed along another axis. A bias is added to every element out (y); its gradient
is the sum of theirs (y), and what the layer reads has no part in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from math import prod, sqrt

from nas.frozen import frozen
from nas.layers.layer import (
    LATER,
    Constant,
    Footprint,
    Layer,
    LayerPlace,
    Normal,
    Read,
    Start,
    TorchLine,
    product_costs,
    product_footprint,
    torch_options,
    torch_size,
)
from nas.layers.shapes import Convolution, Shape, ShapeError, Sides, Windowed, image, refuse_no_sizes
from nas.ops import Cost

TOO_FEW_CHANNELS = 16
"""On a CPU, oneDNN's gradient of the weights of a strided 1x1 convolution writes past its scratch memory
where the layer reads fewer channels than a vector register holds numbers of 32 bits: on AVX2 8, on AVX-512
(bf16 too) and on the widest SVE it knows 16. Such a gradient is wrong, hangs, or kills the process:
https://github.com/uxlfoundation/oneDNN/issues/6035"""


@frozen
class Executed:
    """How torch is asked for a convolution, so that it meets no fault of oneDNN. The numbers are those of the
    layer; modules, exported files and the model of memory all read it here."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    margin: tuple[int, int] | None = None
    """The padding that is made a part of the image first, in place of the convolution's own."""
    by_pixels: bool = False
    """Whether, on a processor, the pixels at each stride are taken first: TOO_FEW_CHANNELS. What then is
    computed has no stride."""


class _Kernels(Windowed):
    """The readings of both kinds of convolution, by the `Conv2d` that a layer is. No layer itself: a record
    could name it."""

    frees_output = True
    centred = True

    def convolution(self, *inputs: Shape) -> Conv2d:
        raise NotImplementedError

    def shape(self, *inputs: Shape) -> Shape:
        (channels, *area), own = image(self, inputs), self.convolution(*inputs)
        if channels % own.groups:
            raise ShapeError(f"Conv2d: {channels} channels in, {own.groups} groups")
        return (own.channels, *[along.num for along in own.windows(area)])

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        own = self.convolution(*inputs)
        weight = {"weight": (own.channels, inputs[0][0] // own.groups, *self.kernels)}
        return {**weight, "bias": (own.channels,)} if own.bias else weight

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        own, y = self.convolution(*inputs), prod(self.shape(*inputs))
        return product_costs("conv", prod(self.kernels) * (inputs[0][0] // own.groups) * y, own.bias * y)

    def start(self, tensor: str, *inputs: Shape) -> Start:
        """He et al., "Delving Deep into Rectifiers", ICCV 2015, by the fan out, as torchvision's ResNet."""
        if tensor == "bias":
            return Constant(0)
        return Normal(sqrt(2 / (self.convolution(*inputs).channels * prod(self.kernels))))

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        found = product_footprint(narrow, reads[0])
        (channels, *area) = reads[0].shape
        if self.convolution(reads[0].shape).executed(reads[0].shape).by_pixels:
            # The pool that takes the pixels keeps what it reads.
            pixels = channels * prod(along.num for along in self.windows(area)) * narrow
            found = replace(found, keeps=(0,), inside=found.inside + pixels, backward=found.backward + pixels)
        return replace(found, blocked_weights=True)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        own, read = self.convolution(*inputs), "{0}"
        how = own.executed(*inputs)
        stride = how.stride
        if how.margin is not None:
            height, width = how.margin
            read = f"F.pad({{0}}, ({width}, {width}, {height}, {height}))"
        elif how.by_pixels:
            read, stride = f"{{0}}[:, :, ::{stride[0]}, ::{stride[1]}]", (1, 1)
        given = torch_options(
            (stride, (1, 1), f"stride={torch_size(stride)}"),
            (how.padding, (0, 0), f"padding={torch_size(how.padding)}"),
            (self.dilations, (1, 1), f"dilation={torch_size(self.dilations)}"),
            (own.groups, 1, f"groups={own.groups}"),
            (own.bias, True, f"bias={own.bias}"),
        )
        made = f"nn.Conv2d({inputs[0][0]}, {own.channels}, {self.kernel}{given})"
        return TorchLine(f"{{own}}({read})", made)

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        height, width = self.paddings
        tensors = [at.weight(name) for name in ("weight", "bias") if name in at.weights]
        at.last(
            "Conv",
            *(inputs[0], *tensors),
            strides=self.strides,
            dilations=self.dilations,
            pads=(height, width, height, width),
            group=self.convolution(*at.reads).groups,
        )


@frozen(repr=False)
class Conv2d(_Kernels, Convolution, Layer):
    """A convolution. Weight: (channels, channels in / groups, kernel, kernel); bias: (channels,)."""

    mixes_channels = True
    channels: int
    kernel: Sides = 3
    stride: Sides = 1
    groups: int = 1
    padding: Sides | None = field(default=None, kw_only=True, metadata=LATER)
    bias: bool = field(default=False, kw_only=True, metadata=LATER)
    dilation: Sides = field(default=1, kw_only=True, metadata=LATER)

    def __post_init__(self) -> None:
        refuse_no_sizes(self, "channels", "groups")
        self.settle()
        if self.channels % self.groups:
            raise ShapeError(f"Conv2d: {self.channels} channels in {self.groups} groups")

    def convolution(self, *inputs: Shape) -> Conv2d:
        return self

    def widened(self, width: int) -> Conv2d:
        return replace(self, channels=width)

    def executed(self, *inputs: Shape) -> Executed:
        """How torch is asked for it; see `Executed`."""
        (channels, *area) = inputs[0]
        down, right = self.windows(area)
        # Where a stride is wider than the image, oneDNN on AVX-512 in bf16 reads gradients of taps that meet
        # padding only from memory never written. Beyond the image a stride changes nothing, if there is one
        # window.
        stride = min(down.stride, down.side), min(right.stride, right.side)
        if stride != self.strides and self.padding is not None:
            # The last of two windows may be at the end of the padding, so this becomes a part of the image.
            stride = min(down.stride, down.padded), min(right.stride, right.padded)
            return Executed(stride, (0, 0), margin=self.paddings)
        few = self.groups == 1 and channels < TOO_FEW_CHANNELS
        return Executed(stride, self.paddings, by_pixels=few and self.kernel == 1 and stride != (1, 1))


@frozen(repr=False)
class DepthwiseConv2d(_Kernels, Layer):
    """A convolution of every channel by itself (Howard et al., "MobileNets", 2017).

    It is as wide as what it reads, so that it widens with it, and is otherwise the `Conv2d` with as many
    groups as channels. Weight: (channels, 1, kernel, kernel); bias: (channels,).
    """

    kernel: Sides = 3
    stride: Sides = 1
    padding: Sides | None = field(default=None, kw_only=True, metadata=LATER)
    bias: bool = field(default=False, kw_only=True, metadata=LATER)
    dilation: Sides = field(default=1, kw_only=True, metadata=LATER)

    def __post_init__(self) -> None:
        self.settle()

    def convolution(self, *inputs: Shape) -> Conv2d:
        channels = image(self, inputs)[0]
        return Conv2d(
            channels,
            self.kernel,
            self.stride,
            channels,
            padding=self.padding,
            bias=self.bias,
            dilation=self.dilation,
        )
