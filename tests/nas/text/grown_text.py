"""Parents for the tests of text morphisms: small networks of every form, with weights that hide nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np

from nas.graph import INPUT, Graph, Node
from nas.head import NextSymbol
from nas.layers import (
    GELU,
    Add,
    Attention,
    Dropout,
    Embedding,
    Experts,
    Layer,
    Linear,
    Product,
    RMSNorm,
    SiLU,
    SquaredReLU,
)
from nas.morphisms import TEXT_MIX, Morphism, MorphismError
from nas.morphisms.text import DeepenPlain, Nonlinearity, Upcycle
from nas.text_seeds import TEXT_SEEDS
from nas.weights import Array

TEXT_KINDS = tuple(TEXT_MIX)
SYMBOLS, POSITIONS = 7, 6

FORMS: Mapping[str, tuple[int, int, int, int, int, bool]] = {
    # width, heads, groups, width of a head, hidden features, whether Linears have a bias
    "plain": (12, 4, 2, 4, 16, True),
    "gated": (8, 4, 1, 2, 12, False),
}


def standard(form: str) -> Graph:
    """One block of attention and MLP. `plain`: squared ReLU, biases; `gated`: SiLU, none."""
    width, heads, groups, each, features, bias = FORMS[form]
    nodes: list[Node] = []

    def put(name: str, layer: Layer, *inputs: str) -> str:
        nodes.append(Node(name, layer, inputs or (nodes[-1].name,)))
        return name

    trunk = put("embedding", Embedding(SYMBOLS, width), INPUT)
    norm = put("block1.norm1", RMSNorm(1e-4), trunk)
    reads = [
        put(f"block1.attention.{part}", Linear(number * each, bias), norm)
        for part, number in (("query", heads), ("key", groups), ("value", groups))
    ]
    put("block1.attention", Attention(heads, groups), *reads)
    trunk = put("block1.add1", Add(), trunk, put("block1.attention.out", Linear(width, bias)))
    norm = put("block1.norm2", RMSNorm(), trunk)
    put("block1.mlp.in", Linear(features, bias), norm)
    inside = put("block1.mlp.act", SquaredReLU() if form == "plain" else SiLU())
    if form == "gated":
        inside = put("block1.mlp.product", Product(), inside, put("block1.mlp.gate", Linear(features), norm))
    put("block1.add2", Add(), trunk, put("block1.mlp.out", Linear(width, bias), inside))
    put("norm", RMSNorm())
    put("symbols", Linear(SYMBOLS))
    return Graph((POSITIONS,), tuple(nodes), head=NextSymbol())


def knotted() -> Graph:
    """Two embeddings; Linears that read what they write into; readers without a norm; an attention that two
    Linears read, one without positions; an MLP whose inside is a sum of four branches."""
    nodes: list[Node] = []

    def put(name: str, layer: Layer, *inputs: str) -> str:
        nodes.append(Node(name, layer, inputs))
        return name

    both = put("ab", Add(), put("a", Embedding(SYMBOLS, 8), INPUT), put("b", Embedding(SYMBOLS, 8), INPUT))
    norm = put("norm1", RMSNorm(), both)
    trunk = put("c", Add(), both, put("straight", Linear(8, bias=True), norm))
    reads = [put(part, Linear(size), trunk) for part, size in (("q", 8), ("k", 4), ("v", 4))]
    put("mixed", Attention(2, 1, rotary=0.0), *reads)
    one, two = put("one", Linear(8), "mixed"), put("two", Linear(8, bias=True), "mixed")
    trunk = put("d", Dropout(0.25), put("sum", Add(), trunk, one, two))
    norm = put("norm2", RMSNorm(), trunk)
    left, right = put("left", Linear(12), norm), put("right", Linear(12, bias=True), trunk)
    inside = put("inside", Add(), put("gelu", GELU(), left), put("silu", SiLU(), right), left)
    inside = put("again", Add(), inside, put("loop", Linear(12), inside))
    trunk = put("e", Add(), trunk, put("out", Linear(8), inside))
    put("symbols", Linear(SYMBOLS), put("norm3", RMSNorm(), put("norm4", RMSNorm(), trunk)))
    return Graph((POSITIONS,), tuple(nodes), head=NextSymbol())


def mixed() -> Graph:
    """Two MLPs, of which one became experts; with weights that are drawn, no two experts are equal."""
    block = DeepenPlain("block1.add2", 2, 1, 4, 100.0, 12, Nonlinearity.GELU, 0)
    return Upcycle("block1.mlp.out", 4, 2, 0).apply(block.apply(standard("gated")))


def grown_text(form: str, seed: int, steps: int = 6) -> Graph:
    graph, rng = standard(form), random.Random(seed)
    for _ in range(steps):
        graph = text_proposal(graph, rng).apply(graph)
    return graph


def text_proposal(graph: Graph, rng: random.Random) -> Morphism:
    """One of any kind that finds a place."""
    for kind in rng.sample(TEXT_KINDS, len(TEXT_KINDS)):
        try:
            return kind.propose(graph, rng)
        except MorphismError:
            continue
    raise AssertionError("no morphism finds a place")


def randomised_text(graph: Graph, seed: int, scale: float = 1.0) -> dict[str, Array]:
    """Weights as if long trained, in fp64. What writes into a residual stream is `scale` times as large."""
    rng = np.random.default_rng(seed)
    into_stream = {name for node in graph.nodes if isinstance(node.layer, Add) for name in node.inputs}
    found = {}
    for name, shape in graph.weights.items():
        node, tensor = graph.node[name.rsplit(".", 1)[0]], name.rsplit(".", 1)[1]
        if isinstance(node.layer, RMSNorm):
            values = rng.uniform(0.5, 1.5, shape) * rng.choice([1, 1, 1, -1], shape)
        elif tensor == "bias":
            values = rng.normal(0, 0.3, shape)
        else:
            values = rng.normal(0, 1 if isinstance(node.layer, Embedding) else shape[-1] ** -0.5, shape)
        puts_out = node.name in into_stream and (tensor == "down" or not isinstance(node.layer, Experts))
        found[name] = values * scale if puts_out else values
    return found | {name: rng.normal(0, 0.3, shape) for name, shape in graph.statistics.items()}


TEXT_PARENTS: Mapping[str, Callable[[], Graph]] = {
    "plain": cache(lambda: standard("plain")),
    "gated": cache(lambda: standard("gated")),
    "knotted": cache(knotted),
    "grown plain": cache(lambda: grown_text("plain", 3)),
    "grown gated": cache(lambda: grown_text("gated", 2)),
    "mixed": cache(mixed),
    "llama": cache(lambda: TEXT_SEEDS["llama-4x128"]((POSITIONS,), SYMBOLS)),
}
