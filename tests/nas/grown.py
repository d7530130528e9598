"""Parents for the tests of morphisms: small networks of every kind, with weights that hide nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np

from nas.graph import INPUT, Graph, Node
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
    GlobalPool,
    Layer,
    MaxPool,
    ReLU,
    ReLU6,
    Shape,
    ShapeError,
)
from nas.morphisms import (
    MIX,
    BranchSplit,
    DeepenBasic,
    DeepenBottleneck,
    Morphism,
    MorphismError,
    Skip,
    SqueezeExcite,
    WidenByCopies,
    WidenTrunkByCopies,
)
from nas.seeds import residual
from nas.weights import Array, initial
from tests.nas.graphs import grouped

KINDS = tuple(MIX)
EXACT = (DeepenBasic, DeepenBottleneck, Skip, SqueezeExcite)
"""Those that leave the kernels of the main path alone, whose sums therefore keep their order."""


COPYING = (WidenByCopies, WidenTrunkByCopies, BranchSplit)
"""Those without new weights, only shares of the parent's."""


def randomised(graph: Graph, seed: int) -> dict[str, Array]:
    """Initial weights with batch norms as if long trained; a fresh one hides what is done to it."""
    rng = np.random.default_rng(seed)
    found = initial(graph, seed)
    for name, values in found.items():
        node, tensor = name.rsplit(".", 1)
        if isinstance(graph.node[node].layer, BatchNorm):
            drawn = {
                "weight": rng.uniform(0.5, 1.5, values.shape) * rng.choice([1, 1, 1, -1], values.shape),
                "bias": rng.normal(0, 0.3, values.shape),
                "running_mean": rng.normal(0, 0.3, values.shape),
                "running_var": rng.uniform(0.5, 2, values.shape),
            }[tensor]
            found[name] = drawn.astype(np.float32)
        elif tensor == "bias":
            found[name] = np.abs(values) + np.float32(1)  # no dead hidden feature
    return found


def aggregated() -> Graph:
    """With grouped convolutions that read and write widths which can grow."""
    graph = DeepenBottleneck("stem.relu", 16, 0, groups=4).apply(residual((1, 8, 8), 5, (8, 12)))
    return DeepenBottleneck("stage2.block1.1.relu", 12, 1, groups=2).apply(graph)


def plain() -> Graph:
    """Without a residual: average pooling, dropout of images and of features, a flatten, a hidden layer."""
    layers: list[Layer] = [Conv2d(8, 3), BatchNorm(), ReLU(), Dropout(0.25), Conv2d(6, 5, 2), ReLU()]
    layers += [
        MaxPool(2, 2),
        Conv2d(12, 1),
        BatchNorm(),
        ReLU(),
        AveragePool(3, 2),
        Conv2d(4, 3),
        BatchNorm(),
    ]
    layers += [ReLU(), Flatten(), Dense(20), ReLU(), Dropout(0.5), Dense(5, bias=False)]
    return _row((3, 21, 21), layers)


def biased() -> Graph:
    """Biased, unpadded, rectangular, grouped convolutions, ReLU6, pools cut at the end and adaptive."""
    layers: list[Layer] = [
        Conv2d(8, 3, 2, padding=0, bias=True),
        ReLU6(),
        DepthwiseConv2d(bias=True),
        ReLU6(),
    ]
    layers += [Conv2d(12, (1, 5)), BatchNorm(), ReLU6(), Conv2d(8, (3, 1), groups=2, padding=0, bias=True)]
    layers += [ReLU6(), MaxPool(3, 2, padding=0, ceil_mode=True), Conv2d(12, 3, padding=0), BatchNorm()]
    layers += [ReLU(), Conv2d(8, 1, bias=True), ReLU6(), AdaptiveAveragePool((3, 2)), Flatten(), Dense(5)]
    return _row((3, 31, 27), layers)


def _row(input: Shape, layers: list[Layer]) -> Graph:
    """One after the other."""
    names = [f"{place}.{type(layer).__name__}" for place, layer in enumerate(layers)]
    above = [INPUT, *names[:-1]]
    return Graph(input, tuple(Node(name, layer, (read,)) for name, layer, read in zip(names, layers, above)))


def joined() -> Graph:
    """Concatenations one in the other, one read twice, one tied by an addition, and a global pool of one."""
    nodes: list[Node] = []

    def put(name: str, layer: Layer, *inputs: str) -> str:
        nodes.append(Node(name, layer, inputs))
        return name

    def conv(name: str, channels: int, kernel: int, entry: str) -> str:
        bn = put(f"{name}.bn", BatchNorm(), put(f"{name}.conv", Conv2d(channels, kernel), entry))
        return put(f"{name}.relu", ReLU(), bn)

    a = conv("a", 8, 3, INPUT)
    b = conv("b", 4, 3, a)
    c = put("c", Concat(), a, b)
    d = conv("d", 6, 1, put("c.depthwise", DepthwiseConv2d(), c))
    e = put("e", Concat(), c, d, b)
    f = conv("f", 8, 3, put("e.pool", MaxPool(3, 2), e))
    g = conv("g", 4, 1, f)
    h = put("h", Concat(), f, g)
    i = conv("i", 12, 1, h)
    j = put("j", Add(), h, i)
    pooled = put("pool", Concat(), put("j.pool", GlobalPool(), j), put("f.pool", GlobalPool(), f))
    put("classifier", Dense(5), pooled)
    return Graph((2, 10, 10), tuple(nodes))


def grown(seed: int, steps: int = 8) -> Graph:
    """A small residual network after a chain of morphisms of any kind."""
    graph, rng = residual((1, 8, 8), 5, (4, 8)), random.Random(seed)
    for _ in range(steps):
        graph = proposal(graph, rng).apply(graph)
    return graph


def proposal(graph: Graph, rng: random.Random) -> Morphism:
    """One of any kind that finds a place."""
    for kind in rng.sample(KINDS, len(KINDS)):
        try:
            return kind.propose(graph, rng)
        except MorphismError:
            continue
    raise AssertionError("no morphism finds a place")


def applies(morphism: Morphism, graph: Graph) -> bool:
    try:
        morphism.apply(graph)
    except (MorphismError, ShapeError):
        return False
    return True


def proposals(graph: Graph, kind: type[Morphism], num: int) -> list[Morphism]:
    """Different ones, as many as there are, of `num` tries."""
    found = []
    for seed in range(num):
        try:
            found.append(kind.propose(graph, random.Random(seed)))
        except MorphismError:
            break
    return list(dict.fromkeys(found))


PARENTS: Mapping[str, Callable[[], Graph]] = {
    "residual": cache(lambda: residual((1, 8, 8), 5, (4, 8))),
    "grouped": cache(lambda: grouped(5)),
    "aggregated": cache(aggregated),
    "plain": cache(plain),
    "biased": cache(biased),
    "joined": cache(joined),
    "grown": cache(lambda: grown(1)),
}
