"""Pools: one number of every window of each channel.

Closed forms: x elements in, y elements out, k² taps of a window (its height times its width), those on the
padding included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import gcd, prod

from nas.layers.layer import Layer
from nas.layers.shapes import Shape, ShapeError, image
from nas.layers.windows import LATER, Sides, Windowed, both, settle_sides
from nas.ops import Cost, Ops


@dataclass(frozen=True, repr=False)
class _Pool(Windowed):
    """No layer itself: a record could name it."""

    kernel: Sides
    stride: Sides
    padding: Sides | None = field(default=None, kw_only=True, metadata=LATER)
    ceil_mode: bool = field(default=False, kw_only=True, metadata=LATER)
    """Whether a window may begin on the image and end beyond its padding."""

    def __post_init__(self) -> None:
        self.settle()
        if any(padding > kernel // 2 for padding, kernel in zip(self.paddings, self.kernels)):
            name = type(self).__name__
            raise ShapeError(f"{name}: padding {self.padding} is more than half a kernel of {self.kernel}")

    def shape(self, *inputs: Shape) -> Shape:
        (channels, *area) = image(self, inputs)
        size = [along.num for along in self.windows(area)]
        if any(kernel > 2 * side + 4 for kernel, side in zip(self.kernels, area)):
            # Taps on the padding are counted, and nothing bounds how many comparisons a device makes.
            name = type(self).__name__
            raise ShapeError(f"{name}: a kernel of {self.kernel} sees mostly padding on an area of {area}")
        return (channels, *size)


@dataclass(frozen=True, repr=False)
class MaxPool(_Pool, Layer):
    """The greatest of each window."""

    keeps_sign = True

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        y = prod(self.shape(*inputs))
        compare = Ops(cmp=(prod(self.kernels) - 1) * y)
        return {"maxpool": Cost(forward=compare, input_grad=Ops(add=y), evaluate=compare)}


@dataclass(frozen=True, repr=False)
class AveragePool(_Pool, Layer):
    """The mean of each window, padding included."""

    keeps_sign = True

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        x, y = prod(inputs[0]), prod(self.shape(*inputs))
        overlap = any(stride < kernel for stride, kernel in zip(self.strides, self.kernels))
        return {"avgpool": _means(x, y, prod(self.kernels) * y, overlap)}


@dataclass(frozen=True)
class AdaptiveAveragePool(Layer):
    """The means of windows that cover the image, as many as `size` says: (channels, *size).

    Of `o` windows along a side of `n` elements, window i begins at ⌊i·n/o⌋ and ends before ⌈(i + 1)·n/o⌉,
    as in PyTorch; where o does not divide n, they overlap.
    """

    keeps_sign = True
    size: Sides
    """Of the area out: one number for both sides, or (height, width)."""

    def __post_init__(self) -> None:
        settle_sides(self, "size")

    def shape(self, *inputs: Shape) -> Shape:
        return (*image(self, inputs)[:1], *both(self.size))

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        # The ends of the windows, ⌈j·n/o⌉ for j of 1 … o, less their beginnings, ⌊i·n/o⌋ for i of 0 … o − 1,
        # have the sum n + #{j : o does not divide j·n} = n + o − gcd(n, o).
        (channels, *area), size = inputs[0], both(self.size)
        taps = channels * prod(side + num - gcd(side, num) for side, num in zip(area, size))
        overlap = any(side % num for side, num in zip(area, size))
        return {"avgpool": _means(prod(inputs[0]), prod(self.shape(*inputs)), taps, overlap)}


@dataclass(frozen=True)
class GlobalPool(Layer):
    """The mean of each channel: (channels, height, width) to (channels,)."""

    keeps_sign = True

    def shape(self, *inputs: Shape) -> Shape:
        return image(self, inputs)[:1]

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        x = prod(inputs[0])
        return {"avgpool": _means(x, inputs[0][0], x, overlap=False)}


def _means(x: int, y: int, taps: int, overlap: bool) -> Cost:
    """Of `taps` elements in all windows together. Where these overlap, an input element gathers its gradient
    from several of them."""
    mean = Ops(add=taps - y, div=y)
    return Cost(mean, Ops(mul=x, add=taps if overlap else 0), Ops(), mean)
