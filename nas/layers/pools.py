"""Pools: one number of every window of each channel.

Closed forms: x elements in, y elements out, k² taps of a window (its height times its width), those on the
padding included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import gcd, prod

from nas.frozen import frozen
from nas.layers.layer import (
    INDEX,
    LATER,
    WIDE,
    Footprint,
    Layer,
    LayerPlace,
    Read,
    TorchLine,
    keeps_input,
    torch_options,
    torch_size,
)
from nas.layers.shapes import Shape, ShapeError, Sides, Windowed, both, image, most_taps, settle_sides
from nas.ops import Cost, Ops


@frozen(repr=False)
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
        if any(kernel > most_taps(side) for kernel, side in zip(self.kernels, area)):
            name = type(self).__name__
            raise ShapeError(f"{name}: a kernel of {self.kernel} sees mostly padding on an area of {area}")
        return (channels, *size)


@frozen(repr=False)
class MaxPool(_Pool, Layer):
    """The greatest of each window."""

    frees_output = True
    keeps_sign = True

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        y = prod(self.shape(*inputs))
        compare = Ops(cmp=(prod(self.kernels) - 1) * y)
        return {"maxpool": Cost(forward=compare, input_grad=Ops(add=y), evaluate=compare)}

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return Footprint(reads[0].width, (0,), inside=INDEX * prod(self.shape(reads[0].shape)))

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine(f"F.max_pool2d({{0}}, {_window(self)})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        # A last window that ends beyond the padding is given the padding that it needs: programs differ in
        # what they make of `ceil_mode`.
        along = self.windows(at.reads[0][1:])
        ends = [(one.num - 1) * one.stride + one.kernel - one.side - one.padding for one in along]
        pads = (*self.paddings, *[max(end, one.padding) for end, one in zip(ends, along)])
        at.last("MaxPool", inputs[0], kernel_shape=self.kernels, strides=self.strides, pads=pads)


@frozen(repr=False)
class AveragePool(_Pool, Layer):
    """The mean of each window, padding included."""

    frees_output = True
    keeps_sign = True

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        x, y = prod(inputs[0]), prod(self.shape(*inputs))
        overlap = any(stride < kernel for stride, kernel in zip(self.strides, self.kernels))
        return {"avgpool": _means(x, y, prod(self.kernels) * y, overlap)}

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return keeps_input(reads[0])

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine(f"F.avg_pool2d({{0}}, {_window(self)})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        along = self.windows(at.reads[0][1:])
        if all((one.num - 1) * one.stride + one.kernel <= one.padded for one in along):
            pads = self.paddings * 2
            at.last(
                "AveragePool",
                inputs[0],
                kernel_shape=self.kernels,
                strides=self.strides,
                pads=pads,
                count_include_pad=1,
            )
            return
        # The last window ends beyond the padding, and its mean is over what lies before that end.
        starts = [range(-one.padding, one.num * one.stride - one.padding, one.stride) for one in along]
        ends = [
            [min(start + one.kernel, one.side + one.padding) for start in begin]
            for one, begin in zip(along, starts)
        ]
        _onnx_means(at, inputs[0], [list(zip(*both_ends)) for both_ends in zip(starts, ends)])


@frozen
class AdaptiveAveragePool(Layer):
    """The means of windows that cover the image, as many as `size` says: (channels, *size).

    Of `o` windows along a side of `n` elements, window i begins at ⌊i·n/o⌋ and ends before ⌈(i + 1)·n/o⌉,
    as in PyTorch; where o does not divide n, they overlap.
    """

    frees_output = True
    keeps_sign = True
    size: Sides
    """The area that it puts out: one number for both sides, or (height, width)."""

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

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return keeps_input(reads[0])

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine(f"F.adaptive_avg_pool2d({{0}}, {self.size})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        area, size = at.reads[0][1:], both(self.size)
        if not any(pixels % num for pixels, num in zip(area, size)):
            kernel = tuple(pixels // num for pixels, num in zip(area, size))
            at.last("AveragePool", inputs[0], kernel_shape=kernel, strides=kernel)
            return
        spans = [
            [(row * pixels // num, -(-(row + 1) * pixels // num)) for row in range(num)]
            for pixels, num in zip(area, size)
        ]
        _onnx_means(at, inputs[0], spans)


@frozen
class GlobalPool(Layer):
    """The mean of each channel: (channels, height, width) to (channels,)."""

    frees_output = True
    keeps_sign = True

    def shape(self, *inputs: Shape) -> Shape:
        return image(self, inputs)[:1]

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        x = prod(inputs[0])
        return {"avgpool": _means(x, inputs[0][0], x, overlap=False)}

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        """Narrow numbers are added up as a copy in fp32."""
        return Footprint(reads[0].width, forward=0 if reads[0].width == WIDE else WIDE * reads[0].num)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("{0}.mean(dim=(2, 3))")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Flatten", at.step("GlobalAveragePool", inputs[0]))


def _means(x: int, y: int, taps: int, overlap: bool) -> Cost:
    """The cost of means over `taps` elements in all windows together. Where these overlap, an input element
    gathers its gradient from several of them."""
    mean = Ops(add=taps - y, div=y)
    return Cost(mean, Ops(mul=x, add=taps if overlap else 0), Ops(), mean)


def _onnx_means(at: LayerPlace, images: str, spans: Sequence[Sequence[tuple[int, int]]]) -> None:
    """Writes means along each side as products: ONNX has no pool whose windows differ in size. `spans` has
    the first pixel of each window and the first behind it, along the height and along the width."""
    import numpy as np

    down, right = (np.zeros((len(windows), side)) for windows, side in zip(spans, at.reads[0][1:]))
    for matrix, windows in zip((down, right), spans):
        for row, (begin, end) in enumerate(windows):
            matrix[row, max(0, begin) : end] = 1 / (end - begin)
    lines = at.step("MatMul", at.constant("down", down), images)
    at.last("MatMul", lines, at.constant("right", right.T))


def _window(layer: Windowed) -> str:
    """The arguments of a pool in PyTorch: kernel, stride, and what differs from torch's defaults."""
    ceil = layer.ceil_mode
    given = torch_options(
        (layer.paddings, (0, 0), f"padding={torch_size(layer.paddings)}"), (ceil, False, f"ceil_mode={ceil}")
    )
    return f"{torch_size(layer.kernels)}, {torch_size(layer.strides)}{given}"
