"""Products that are not those of the score: what must really be multiplied, and what others count.

What must be multiplied, however clever the library, is a lower bound of the counted products. The count of
the score holds the taps that fall on the padding, and no saving by an algorithm; both are customary. Whether
a device can have done some work in some time is checked against this bound instead.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import prod

from nas.graph import Graph
from nas.layers import Attention, Layer, Shape
from nas.ops import Cost, Ops

WINOGRAD_SAVING = 2
"""Along each side of the kernel: F(4 x 4, 3 x 3) makes 36 products where 144 are counted. Lavin and Gray,
"Fast Algorithms for Convolutional Neural Networks", CVPR 2016."""


def least_products(graph: Graph) -> tuple[int, int]:
    """Multiply-accumulates of one image, in training and in validation, that no library can do without."""
    train = evaluate = 0
    for node in graph.nodes:
        share = _share(node.layer, graph.reads(node))
        for cost in graph.charged(node):
            train += int(share * cost.train.mac)
            evaluate += int(share * cost.evaluate.mac)
    return train, evaluate


def all_pairs(graph: Graph) -> Cost | None:
    """The whole cost, if attention were counted on T² pairs as published MFU is; None without attention."""
    total = None
    for node in graph.nodes:
        if isinstance(node.layer, Attention):
            masked = node.layer.masked(*graph.reads(node))
            reached = not graph.trained.isdisjoint(node.inputs)
            total = (total or graph.cost) + (masked if reached else replace(masked, input_grad=Ops()))
    return total


def _share(layer: Layer, reads: tuple[Shape, ...]) -> Fraction:
    """Least share of a layer's counted products that must be multiplied."""
    convolution = layer.convolution(*reads)
    if convolution is None:
        return Fraction(1)
    windows = convolution.windows(reads[0][1:])
    on_the_image = prod(along.taps_on_image for along in windows)
    counted = prod(along.kernel * along.num for along in windows)
    return Fraction(on_the_image, counted * prod(_saving(along.kernel) for along in windows))


def _saving(side: int) -> int:
    """The most that an algorithm saves along one side of a kernel. By a Fourier transform large kernels need
    about one product for each output and input channel: Mathieu et al., arXiv:1312.5851."""
    return {3: WINOGRAD_SAVING}.get(side, side)
