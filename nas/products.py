"""What must really be multiplied, however clever the library: a lower bound of the counted products.

The count of the score holds the taps that fall on the padding, and no saving by an algorithm; both are
customary. Whether a device can have done some work in some time is asked with this bound instead.
"""

from __future__ import annotations

from fractions import Fraction

from nas.graph import Graph
from nas.layers import Convolution, Layer, Shape

WINOGRAD_SAVING = 4
"""F(4 x 4, 3 x 3) makes 36 products where 144 are counted: Lavin and Gray, "Fast Algorithms for Convolutional
Neural Networks", CVPR 2016."""


def least_products(graph: Graph) -> tuple[int, int]:
    """Multiply-accumulates of one image, in training and in validation, that no library can do without."""
    train = evaluate = 0
    for node in graph.nodes:
        share = _share(node.layer, graph.reads(node))
        for cost in graph.charged(node):
            train += int(share * cost.train.mac)
            evaluate += int(share * cost.evaluate.mac)
    return train, evaluate


def _share(layer: Layer, reads: tuple[Shape, ...]) -> Fraction:
    """Of the counted products of a layer."""
    convolution = layer.convolution(*reads)
    if convolution is None:
        return Fraction(1)
    (_, height, width), (_, rows, columns) = reads[0], layer.shape(*reads)
    on_the_image, kernel = _taps(height, convolution) * _taps(width, convolution), convolution.kernel
    return Fraction(on_the_image, kernel**2 * rows * columns * _saving(kernel))


def _saving(kernel: int) -> int:
    """The most that an algorithm saves. By a Fourier transform large kernels need about one product for each
    output and input channel: Mathieu et al., arXiv:1312.5851."""
    return {1: 1, 3: WINOGRAD_SAVING}.get(kernel, kernel**2)


def _taps(side: int, layer: Convolution) -> int:
    """Of one row of the kernel, at all its places along one side of the image, those that fall on it."""
    reach = (layer.kernel - 1) // 2
    places = range(-reach, side + reach - layer.kernel + 1, layer.stride)
    return sum(min(side, place + layer.kernel) - max(0, place) for place in places)
