"""Parents for the tests of morphisms: small networks of every kind, with weights that hide nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from nas.graph import INPUT, Graph
from nas.head import NextSymbol
from nas.layers import (
    GELU,
    AdaptiveAveragePool,
    Add,
    Attention,
    AveragePool,
    BatchNorm,
    ChannelNorm,
    ChannelShuffle,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Dropout,
    Embedding,
    Experts,
    Flatten,
    GlobalPool,
    GroupNorm,
    HardSigmoid,
    HardSwish,
    Linear,
    MaxPool,
    Product,
    ReLU,
    ReLU6,
    RMSNorm,
    ShapeError,
    SiLU,
    SquaredReLU,
    Upsample,
)
from nas.morphisms import MIX, TEXT_MIX, DeepenBottleneck, Morphism, MorphismError
from nas.morphisms.text import DeepenPlain, Nonlinearity, Upcycle
from nas.seeds import residual
from nas.text_seeds import TEXT_SEEDS
from nas.weights import Array, initial
from tests.nas.graphs import Draft, chain, grouped

SYMBOLS, POSITIONS = 7, 6


def aggregated() -> Graph:
    """With grouped convolutions that read and write widths which can grow."""
    graph = DeepenBottleneck("stem.relu", 16, 0, groups=4).apply(residual((1, 8, 8), 5, (8, 12)))
    return DeepenBottleneck("stage2.block1.1.relu", 12, 1, groups=2).apply(graph)


def plain() -> Graph:
    """Without a residual: average pooling, dropout of images and of features, a flatten, a hidden layer.

    The last kernel is 1: a wider one could have a filter that is never positive where it meets padding.
    """
    return chain(
        *(Conv2d(8, 3), BatchNorm(), ReLU(), Dropout(0.25), Conv2d(6, 5, 2), ReLU(), MaxPool(2, 2)),
        *(Conv2d(12, 1), BatchNorm(), ReLU(), AveragePool(3, 2), Conv2d(4, 1), BatchNorm(), ReLU()),
        *(Flatten(), Dense(20), ReLU(), Dropout(0.5), Dense(5, bias=False)),
        input=(3, 21, 21),
    )


def biased() -> Graph:
    """Biased, unpadded, rectangular, grouped convolutions, ReLU6, pools cut at the end and adaptive."""
    return chain(
        *(Conv2d(8, 3, 2, padding=0, bias=True), ReLU6(), DepthwiseConv2d(bias=True), ReLU6()),
        *(Conv2d(12, (1, 5)), BatchNorm(), ReLU6(), Conv2d(8, (3, 1), groups=2, padding=0, bias=True)),
        *(ReLU6(), MaxPool(3, 2, padding=0, ceil_mode=True), Conv2d(12, 3, padding=0), BatchNorm(), ReLU()),
        *(Conv2d(8, 1, bias=True), ReLU6(), AdaptiveAveragePool((3, 2)), Flatten(), Dense(5)),
        input=(3, 31, 27),
    )


def modern(side: int = 9) -> Graph:
    """Layers of networks later than ResNet, between convolutions that can be widened, deepened and split. The
    depthwise convolution of 7 begins a block of ConvNeXt."""
    return chain(
        *(Conv2d(8, 3), BatchNorm(), HardSwish(), Conv2d(8, 3, 2), BatchNorm(), HardSigmoid()),
        *(Conv2d(8, 3, dilation=2), BatchNorm(), ReLU(), DepthwiseConv2d(3, padding=1, dilation=(1, 2))),
        *(Conv2d(8, 3), GroupNorm(2), Conv2d(8, 3, groups=2), BatchNorm(), ReLU()),
        *(ChannelShuffle(2), DepthwiseConv2d(), BatchNorm(), Conv2d(8, 1, groups=2), BatchNorm(), ReLU()),
        *(Upsample(2), Conv2d(8, 3, 2), BatchNorm(), ReLU()),
        *(DepthwiseConv2d(7, bias=True), ChannelNorm(), Conv2d(16, 1, bias=True), GELU()),
        *(Conv2d(8, 1, bias=True), BatchNorm(), ReLU(), GlobalPool(), Dense(5)),
        input=(3, side, side),
    )


def joined() -> Graph:
    """Concatenations one in the other, one read twice, one tied by an addition, and a global pool of one."""
    draft = Draft()
    put = draft.put

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
    j = put("j", Add(), h, conv("i", 12, 1, h))
    put("pool", Concat(), put("j.pool", GlobalPool(), j), put("f.pool", GlobalPool(), f))
    put("classifier", Dense(5))
    return draft.graph(2, 10, 10)


FORMS: Mapping[str, tuple[int, int, int, int, int, bool]] = {
    # width, heads, groups, width of a head, hidden features, whether Linears have a bias
    "plain": (12, 4, 2, 4, 16, True),
    "gated": (8, 4, 1, 2, 12, False),
}


def standard(form: str, tied: bool = False, **options: Any) -> Graph:
    """One block of attention, with these options, and MLP. `plain`: squared ReLU, biases; `gated`: SiLU, no
    biases."""
    width, heads, groups, each, features, bias = FORMS[form]
    draft = Draft()
    put = draft.put
    trunk = put("embedding", Embedding(SYMBOLS, width))
    norm = put("block1.norm1", RMSNorm(1e-4))
    reads = [
        put(f"block1.attention.{part}", Linear(number * each, bias), norm)
        for part, number in (("query", heads), ("key", groups), ("value", groups))
    ]
    put("block1.attention", Attention(heads, groups, **options), *reads)
    trunk = put("block1.add1", Add(), trunk, put("block1.attention.out", Linear(width, bias)))
    norm = put("block1.norm2", RMSNorm(), trunk)
    put("block1.mlp.in", Linear(features, bias))
    inside = put("block1.mlp.act", SquaredReLU() if form == "plain" else SiLU())
    if form == "gated":
        inside = put("block1.mlp.product", Product(), inside, put("block1.mlp.gate", Linear(features), norm))
    put("block1.add2", Add(), trunk, put("block1.mlp.out", Linear(width, bias), inside))
    put("norm", RMSNorm())
    put("symbols", Linear(SYMBOLS, tied=tied))
    return draft.graph(POSITIONS, head=NextSymbol())


def knotted() -> Graph:
    """Two embeddings; Linears that read what they write into; readers without a norm; an attention that two
    Linears read, one without positions; an MLP whose inside is a sum of four branches."""
    draft = Draft()
    put = draft.put
    both = put("ab", Add(), put("a", Embedding(SYMBOLS, 8), INPUT), put("b", Embedding(SYMBOLS, 8), INPUT))
    norm = put("norm1", RMSNorm())
    trunk = put("c", Add(), both, put("straight", Linear(8, bias=True), norm))
    reads = [put(part, Linear(size), trunk) for part, size in (("q", 8), ("k", 4), ("v", 4))]
    put("mixed", Attention(2, 1, rotary=0.0), *reads)
    one, two = put("one", Linear(8), "mixed"), put("two", Linear(8, bias=True), "mixed")
    trunk = put("d", Dropout(0.25), put("sum", Add(), trunk, one, two))
    norm = put("norm2", RMSNorm())
    left, right = put("left", Linear(12), norm), put("right", Linear(12, bias=True), trunk)
    inside = put("inside", Add(), put("gelu", GELU(), left), put("silu", SiLU(), right), left)
    inside = put("again", Add(), inside, put("loop", Linear(12), inside))
    trunk = put("e", Add(), trunk, put("out", Linear(8), inside))
    put("norm4", RMSNorm())
    put("norm3", RMSNorm())
    put("symbols", Linear(SYMBOLS))
    return draft.graph(POSITIONS, head=NextSymbol())


def mixed() -> Graph:
    """Two MLPs, of which one became experts; with weights that are drawn, no two experts are equal."""
    block = DeepenPlain("block1.add2", 2, 1, 4, 100.0, 12, Nonlinearity.GELU, 0)
    return Upcycle("block1.mlp.out", 4, 2, 0).apply(block.apply(standard("gated")))


def randomised(graph: Graph, seed: int, scale: float = 1.0) -> dict[str, Array]:
    """Weights as if long trained: fresh batch norms and norms hide what is done to them.

    Those of images are of fp32, those of text of fp64; what writes into a residual stream is `scale` times
    as large.
    """
    rng = np.random.default_rng(seed)
    return (
        _of_text(graph, rng, scale)
        if isinstance(graph.head, NextSymbol)
        else _of_images(initial(graph, seed), graph, rng)
    )


def _of_images(found: dict[str, Array], graph: Graph, rng: np.random.Generator) -> dict[str, Array]:
    for name, values in found.items():
        node, tensor = name.rsplit(".", 1)
        if isinstance(graph.node[node].layer, (BatchNorm, GroupNorm, ChannelNorm)):
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


def _of_text(graph: Graph, rng: np.random.Generator, scale: float) -> dict[str, Array]:
    into_stream = {name for node in graph.nodes if isinstance(node.layer, Add) for name in node.inputs}
    found = {}
    for name, shape in graph.weights.items():
        node, tensor = graph.node[name.rsplit(".", 1)[0]], name.rsplit(".", 1)[1]
        if isinstance(node.layer, RMSNorm) or tensor in ("query_norm", "key_norm"):
            values = rng.uniform(0.5, 1.5, shape) * rng.choice([1, 1, 1, -1], shape)
        elif tensor == "bias":
            values = rng.normal(0, 0.3, shape)
        else:
            values = rng.normal(0, 1 if isinstance(node.layer, Embedding) else shape[-1] ** -0.5, shape)
        puts_out = node.name in into_stream and (tensor == "down" or not isinstance(node.layer, Experts))
        found[name] = values * scale if puts_out else values
    return found | {name: rng.normal(0, 0.3, shape) for name, shape in graph.statistics.items()}


def kinds_for(graph: Graph) -> tuple[type[Morphism], ...]:
    return tuple(TEXT_MIX if isinstance(graph.head, NextSymbol) else MIX)


def proposal(graph: Graph, rng: random.Random) -> Morphism:
    """One of any kind that finds a place."""
    kinds = kinds_for(graph)
    for kind in rng.sample(kinds, len(kinds)):
        try:
            return kind.propose(graph, rng)
        except MorphismError:
            continue
    raise AssertionError("no morphism finds a place")


def descendants(graph: Graph, seed: int, steps: int) -> Iterator[Graph]:
    """One after the other, by morphisms of any kind."""
    rng = random.Random(seed)
    for _ in range(steps):
        graph = proposal(graph, rng).apply(graph)
        yield graph


def grown(seed: int, steps: int = 8, root: Graph | None = None) -> Graph:
    """The last descendant of a small residual network, or of another root."""
    root = root or PARENTS["residual"]()
    return [root, *descendants(root, seed, steps)][-1]


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


def parents_of(kind: type[Morphism]) -> Mapping[str, Callable[[], Graph]]:
    return PARENTS if kind in MIX else TEXT_PARENTS


def cases(kind: type[Morphism], num: int) -> Iterator[tuple[str, Graph, Morphism]]:
    """Up to this many morphisms of this kind for each parent."""
    for name, parent in parents_of(kind).items():
        for morphism in proposals(parent(), kind, num):
            yield name, parent(), morphism


PARENTS: Mapping[str, Callable[[], Graph]] = {
    "residual": cache(lambda: residual((1, 8, 8), 5, (4, 8))),
    "grouped": cache(lambda: grouped(5, 8)),
    "aggregated": cache(aggregated),
    "plain": cache(plain),
    "biased": cache(biased),
    "joined": cache(joined),
    "modern": cache(modern),
    "grown": cache(lambda: grown(1)),
}
TEXT_PARENTS: Mapping[str, Callable[[], Graph]] = {
    "plain": cache(lambda: standard("plain")),
    "gated": cache(lambda: standard("gated")),
    "knotted": cache(knotted),
    "grown plain": cache(lambda: grown(3, 6, standard("plain"))),
    "grown gated": cache(lambda: grown(2, 6, standard("gated"))),
    "mixed": cache(mixed),
    "tied": cache(lambda: standard("plain", tied=True)),
    "windowed": cache(lambda: standard("gated", window=3, head_norm=True)),
    "llama": cache(lambda: TEXT_SEEDS["llama-2x64"]((POSITIONS,), SYMBOLS)),
}
