"""An architecture in numbers, for a surrogate that is to learn what makes an error small."""

from __future__ import annotations

from collections import Counter
from math import log

import numpy as np

from nas.graph import INPUT, Graph
from nas.layers import Add, BatchNorm, Concat, Conv2d, Dense, DepthwiseConv2d, Dropout, Gate, MaxPool, ReLU
from nas.ops import OPS

COUNTED = (Conv2d, BatchNorm, ReLU, Add, Concat, Gate, Dense, Dropout, MaxPool)
NUM_FEATURES = 13 + len(COUNTED)


def features(graph: Graph) -> np.ndarray:
    """float32 of (NUM_FEATURES,): sizes, depth, widths and kernels of the convolutions, layers by kind."""
    convolutions = [
        found for node in graph.nodes if (found := node.layer.convolution(*graph.reads(node))) is not None
    ]
    widths = [log(layer.channels) for layer in convolutions] or [0.0]
    kernels = [max(layer.kernels) for layer in convolutions] or [0]
    grouped = sum(layer.groups > 1 for layer in convolutions)
    strides = sum(max(layer.strides) > 1 for layer in convolutions)
    third = max(1, len(widths) // 3)
    kinds = Counter(type(node.layer) for node in graph.nodes)
    return np.array(
        [
            log(graph.cost.train.price(OPS)),
            log(graph.cost.evaluate.price(OPS)),
            log(max(1, graph.num_parameters)),
            log(graph.num_activations),
            _depth(graph),
            len(graph.nodes),
            _mean(widths[:third]),
            _mean(widths[third:-third] or widths),
            _mean(widths[-third:]),
            max(widths),
            _mean(kernels),
            grouped,
            strides,
            *(kinds[kind] for kind in COUNTED),
        ],
        dtype=np.float32,
    )


def _depth(graph: Graph) -> int:
    """Convolutions and dense layers on the longest way from the image to the logits."""
    depth = {INPUT: 0}
    for node in graph.nodes:
        weighted = isinstance(node.layer, (Conv2d, DepthwiseConv2d, Dense))
        depth[node.name] = max(depth[name] for name in node.inputs) + weighted
    return depth[graph.nodes[-1].name]


def _mean(values: list[float] | list[int]) -> float:
    return sum(values) / len(values)
