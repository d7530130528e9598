"""Operations as AIPerf 1.0 counted them, for one labelled column of comparison and never for the score.

Its counter described each layer by position, and credited whole epochs. Layers that it did not know (gates,
dropout, ReLU6, average pools, biases of convolutions) count nothing here. For its own ResNet-50
(`resnet50_v1`) it gave 7,806,583,495 forward and 15,246,874,820 backward operations per image.

Ren et al., "AIPerf: Automated Machine Learning as an AI-HPC Benchmark", Big Data Mining and Analytics 4(3),
2021, and the program published with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from nas.graph import INPUT, Graph
from nas.layers import Add, BatchNorm, Dense, GlobalPool, Layer, MaxPool, ReLU, Shape


@dataclass(frozen=True)
class OldCount:
    """Operations for one image, as one sum over all kinds, with AIPerf 1.0's own weights."""

    forward: int
    backward: int


def old_count(graph: Graph) -> OldCount:
    """Operations for one image, as AIPerf 1.0 counted them."""
    forward, backward = _softmax(graph.classes), 0
    for node in graph.nodes:
        there, back = _charge(node.layer, graph.reads(node), INPUT in node.inputs)
        forward += there
        backward += back
    return OldCount(forward, backward)


def _softmax(classes: int) -> int:
    return 8 * classes + (classes - 1) + 4 * classes


# Children share nearly all their layers with their parents.
@lru_cache(maxsize=1 << 16)
def _charge(layer: Layer, inputs: tuple[Shape, ...], first: bool) -> tuple[int, int]:
    """Operations of a layer, forward and backward."""
    x = prod(inputs[0])
    if convolution := layer.convolution(*inputs):
        channels, height, width = layer.shape(*inputs)
        area = height * width
        products = prod(convolution.kernels) * (inputs[0][0] // convolution.groups) * channels
        return 2 * area * products, products * ((2 if first else 4) * area + 2)
    if isinstance(layer, Dense):
        products = x * layer.features
        return 2 * products, 4 * products + 2 * (x + 1) * layer.features
    if isinstance(layer, BatchNorm):
        return 7 * x, 36
    if isinstance(layer, ReLU):
        return x, 0
    if isinstance(layer, Add):
        return x * (len(inputs) - 1), 0
    if isinstance(layer, MaxPool):
        return x * prod(layer.kernels) // prod(layer.strides), 0
    if isinstance(layer, GlobalPool):
        channels = inputs[0][0]
        return x - channels + 4 * channels, 0
    return 0, 0
