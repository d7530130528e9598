"""Layers of images, of vectors, and of every element by itself, in operators of ONNX."""

from __future__ import annotations

import numpy as np

from nas.layers import (
    AdaptiveAveragePool,
    Add,
    AveragePool,
    BatchNorm,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Dropout,
    Flatten,
    Gate,
    GlobalPool,
    MaxPool,
    ReLU,
    ReLU6,
)
from nas.layers.windows import both
from nas.portable.onnx_draft import LayerPlace, write
from nas.weights import Array

BATCH_NORM_EPSILON = 1e-5  # as in nas/modules/images.py


@write.register
def _(layer: Conv2d, at: LayerPlace, *inputs: str) -> None:
    height, width = layer.paddings
    tensors = [at.weight(name) for name in ("weight", "bias") if name in at.weights]
    at.last(
        "Conv",
        *(inputs[0], *tensors),
        strides=layer.strides,
        pads=(height, width, height, width),
        group=layer.groups,
    )


@write.register
def _(layer: DepthwiseConv2d, at: LayerPlace, *inputs: str) -> None:
    write(layer.convolution(*at.reads), at, *inputs)


@write.register
def _(layer: Dense, at: LayerPlace, *inputs: str) -> None:
    tensors = [at.weight(name) for name in ("weight", "bias") if name in at.weights]
    at.last("Gemm", inputs[0], *tensors, transB=1)


@write.register
def _(layer: BatchNorm, at: LayerPlace, *inputs: str) -> None:
    tensors = [at.weight(name) for name in ("weight", "bias", "running_mean", "running_var")]
    at.last("BatchNormalization", inputs[0], *tensors, epsilon=BATCH_NORM_EPSILON)


@write.register
def _(layer: MaxPool, at: LayerPlace, *inputs: str) -> None:
    # A last window that ends beyond the padding is given the padding that it needs: programs differ in what
    # they make of `ceil_mode`.
    along = layer.windows(at.reads[0][1:])
    ends = [(one.num - 1) * one.stride + one.kernel - one.side - one.padding for one in along]
    pads = (*layer.paddings, *[max(end, one.padding) for end, one in zip(ends, along)])
    at.last("MaxPool", inputs[0], kernel_shape=layer.kernels, strides=layer.strides, pads=pads)


@write.register
def _(layer: AveragePool, at: LayerPlace, *inputs: str) -> None:
    along = layer.windows(at.reads[0][1:])
    if all((one.num - 1) * one.stride + one.kernel <= one.padded for one in along):
        at.last(
            "AveragePool",
            inputs[0],
            kernel_shape=layer.kernels,
            strides=layer.strides,
            pads=layer.paddings * 2,
            count_include_pad=1,
        )
        return
    # The last window ends beyond the padding, and its mean is over what lies before that end.
    parts = []
    for one in along:
        matrix = np.zeros((one.num, one.side))
        for row, start in enumerate(range(-one.padding, one.num * one.stride - one.padding, one.stride)):
            end = min(start + one.kernel, one.side + one.padding)
            matrix[row, max(0, start) : min(one.side, end)] = 1 / (end - start)
        parts.append(matrix)
    _averaged(at, inputs[0], *parts)


@write.register
def _(layer: AdaptiveAveragePool, at: LayerPlace, *inputs: str) -> None:
    area, size = at.reads[0][1:], both(layer.size)
    if not any(side % num for side, num in zip(area, size)):
        kernel = tuple(side // num for side, num in zip(area, size))
        at.last("AveragePool", inputs[0], kernel_shape=kernel, strides=kernel)
        return
    parts = []
    for side, num in zip(area, size):
        matrix = np.zeros((num, side))
        for row in range(num):
            begin, end = row * side // num, -(-(row + 1) * side // num)
            matrix[row, begin:end] = 1 / (end - begin)
        parts.append(matrix)
    _averaged(at, inputs[0], *parts)


def _averaged(at: LayerPlace, images: str, down: Array, right: Array) -> None:
    """Means along each side as products: ONNX has no pool whose windows differ in size."""
    lines = at.step("MatMul", at.constant("down", down), images)
    at.last("MatMul", lines, at.constant("right", right.T))


@write.register
def _(layer: GlobalPool, at: LayerPlace, *inputs: str) -> None:
    at.last("Flatten", at.step("GlobalAveragePool", inputs[0]))


@write.register
def _(layer: Add, at: LayerPlace, *inputs: str) -> None:
    total = inputs[0]
    for other in inputs[1:-1]:
        total = at.step("Add", total, other)
    at.last("Add", total, inputs[-1])


@write.register
def _(layer: Concat, at: LayerPlace, *inputs: str) -> None:
    at.last("Concat", *inputs, axis=1)


@write.register
def _(layer: ReLU6, at: LayerPlace, *inputs: str) -> None:
    at.last("Clip", inputs[0], at.constant("least", 0.0), at.constant("greatest", 6.0))


@write.register
def _(layer: Gate, at: LayerPlace, *inputs: str) -> None:
    gate = at.step("Mul", at.step("Sigmoid", inputs[1]), at.constant("two", 2.0))
    at.last("Mul", inputs[0], at.step("Unsqueeze", gate, at.constant("area", [2, 3])))


@write.register
def _(layer: ReLU, at: LayerPlace, *inputs: str) -> None:
    at.last("Relu", *inputs)


@write.register
def _(layer: Flatten, at: LayerPlace, *inputs: str) -> None:
    at.last("Flatten", *inputs)


@write.register
def _(layer: Dropout, at: LayerPlace, *inputs: str) -> None:
    at.last("Identity", *inputs)  # it is a step of training alone
