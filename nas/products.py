"""Operations that are not those of the score: what must really be computed, and what others count.

What must be computed, however clever the library, is a lower bound of the counted operations. The count of
the score holds the taps that fall on the padding, and no saving by an algorithm; both are customary. Whether
a device can have done some work in some time is checked against this bound instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from math import prod

from nas.graph import Graph, Node
from nas.layers import (
    AdaptiveAveragePool,
    Add,
    Attention,
    AveragePool,
    BatchNorm,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Embedding,
    Experts,
    GlobalPool,
    Layer,
    Linear,
    MaxPool,
    ReLU,
    ReLU6,
    Shape,
    Windowed,
)
from nas.layers.shapes import Windows
from nas.ops import Cost, Ops

WINOGRAD_SAVING = 2
"""Along each side of the kernel: F(4 x 4, 3 x 3) makes 36 products where 144 are counted. Lavin and Gray,
"Fast Algorithms for Convolutional Neural Networks", CVPR 2016."""

LEAST_OF_A_BATCH_NORM, LEAST_WITHOUT_GRADIENT = 12, 8
"""Operations for each element of a batch norm in training, of 17 counted, and without dx, of 11. Forward,
sums of x and x² (add 2, mul 1), one factor and one summand for each channel (mul 1, add 1); sums of dy and
dy·x (add 2, mul 1); dx as a sum of dy, x and a constant, with factors for each channel (mul 2, add 2)."""
POOLS = (MaxPool, AveragePool, AdaptiveAveragePool, GlobalPool)
IDEMPOTENT = (ReLU, ReLU6)
BY_PRODUCTS = (Conv2d, DepthwiseConv2d, Dense, Linear, Embedding, Experts)
"""Layers whose element-wise operations can be parts of their products, or products themselves."""


def least_products(graph: Graph) -> tuple[int, int]:
    """Multiply-accumulates of one image, in training and in validation, that no library can do without."""
    train = evaluate = 0
    for node in graph.nodes:
        share = _share(node.layer, graph.reads(node))
        for cost in graph.charged(node):
            train += int(share * cost.train.mac)
            evaluate += int(share * cost.evaluate.mac)
    return train, evaluate


def least_elements(graph: Graph) -> tuple[int, int]:
    """Element-wise operations of one image, in training and in validation, that no library does without. Each
    counts once, whatever its price.

    Left out is what products can do: biases, embeddings, mixtures of experts, and in validation batch norms,
    which are factors of the weights before them. A ReLU of a ReLU does nothing.
    """
    layers = {node.name: node.layer for node in graph.nodes}
    train = evaluate = 0
    for node in graph.nodes:
        rows, layer = graph.charged(node), node.layer
        if isinstance(layer, POOLS):
            least = _least_of_pool(layer, *graph.reads(node))
            train += min(least, sum(element_operations(cost.forward) for cost in rows))
            evaluate += min(least, sum(element_operations(cost.evaluate) for cost in rows))
        elif isinstance(layer, BatchNorm):
            x, reached = prod(graph.shapes[node.name]), not graph.trained.isdisjoint(node.inputs)
            train += x * (LEAST_OF_A_BATCH_NORM if reached else LEAST_WITHOUT_GRADIENT)
        elif isinstance(layer, Add):  # the same number twice is a factor of it
            sums = prod(graph.shapes[node.name]) * (len(set(node.inputs)) - 1)
            train, evaluate = train + sums, evaluate + sums
        elif not isinstance(layer, BY_PRODUCTS) and not _is_repeated(node, layers):
            train += sum(element_operations(cost.train) for cost in rows)
            evaluate += sum(element_operations(cost.evaluate) for cost in rows)
    return train, evaluate


def _is_repeated(node: Node, layers: Mapping[str, Layer]) -> bool:
    """Whether a layer that does the same twice as once reads one like it: a compiler leaves it out."""
    return isinstance(node.layer, IDEMPOTENT) and layers.get(node.inputs[0]) == node.layer


def element_operations(ops: Ops) -> int:
    """Operations that are no products, each once."""
    return sum(ops) - ops.mac


def _least_of_pool(layer: Layer, read: Shape) -> int:
    """The fewest operations of a pool, however much its windows share (van Herk, "A fast algorithm for local
    minimum and maximum filters", Pattern Recognition Letters 13(7), 1992). Each makes one number of two, so
    there are as many as elements exceed results, and one for each result that is not a copy."""
    if not isinstance(layer, Windowed):  # each element is in a window
        return max(0, prod(read) - prod(layer.shape(read)))
    windows = layer.windows(read[1:])
    results = prod(along.num for along in windows)
    copies = all(along.kernel == 1 for along in windows)
    return read[0] * max(prod(along.pixels_seen for along in windows) - results, 0 if copies else results)


def all_pairs(graph: Graph) -> Cost | None:
    """The whole cost, if attention were counted on T² pairs as published MFU is; None without attention."""
    total = None
    for node in graph.nodes:
        if isinstance(node.layer, Attention):
            masked = node.layer.masked(*graph.reads(node))
            reached = not graph.trained.isdisjoint(node.inputs)
            total = (total or graph.cost) + (masked if reached else replace(masked, input_grad=Ops()))
    return total


@lru_cache(maxsize=1 << 12)  # children share nearly all their layers with their parents
def _share(layer: Layer, reads: tuple[Shape, ...]) -> Fraction:
    """Least share of a layer's counted products that must be multiplied."""
    convolution = layer.convolution(*reads)
    if convolution is None:
        return Fraction(1)
    windows = convolution.windows(reads[0][1:])
    counted = prod(along.kernel * along.num for along in windows)
    return prod(map(_least_along, windows), start=Fraction(1)) / counted


def _least_along(windows: Windows) -> Fraction:
    """The fewest products along one side, for each input and output channel: those of taps on the image less
    what an algorithm saves, but one for each window that sees the image, because no two of these give
    the same sum of products (Winograd, "On the Number of Multiplications Necessary to Compute Certain
    Functions", Communications on Pure and Applied Mathematics 23, 1970)."""
    saved = Fraction(windows.taps_on_image, _saving(windows.kernel))
    return max(saved, Fraction(windows.least_that_see))


def _saving(side: int) -> int:
    """The most that an algorithm saves along one side of a kernel. By a Fourier transform large kernels need
    about one product for each output and input channel: Mathieu et al., arXiv:1312.5851."""
    return {3: WINOGRAD_SAVING}.get(side, side)
