"""The counter against torch's, which counts what is really executed and knows nothing of our rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from nas.graph import Graph
from nas.head import NextSymbol
from nas.layers import Add, Embedding, Experts, Linear
from nas.morphisms.text import DeepenPlain, Nonlinearity, Upcycle
from nas.ops import TENSOR_OPS
from nas.products import all_pairs
from nas.seeds import residual
from nas.text_seeds import gpt_4x128, llama_4x128
from tests.nas.graphs import graphs, grouped, texts, wired
from tests.nas.grown import grown, standard
from tests.nas.oracles import by_torch, by_us


def mixture() -> Graph:
    rows = {"embedding": [Embedding(11, 24)], "experts": [Experts(8, 2, 40)]}
    ends = {"add": [Add(), "embedding", "experts"], "symbols": [Linear(11)]}
    return wired({**rows, **ends}, 13, head=NextSymbol())


def upcycled(chosen: int) -> Graph:
    """Gated experts in a network as Llama's, plain ones in a block that was added to it."""
    graph = DeepenPlain("block4.add2", 4, 2, 32, 1e4, 96, Nonlinearity.GELU, 0).apply(llama_4x128((20,)))
    for node in ("block2.mlp.out", "block5.mlp.out"):
        graph = Upcycle(node, 5, chosen, 0).apply(graph)
    assert graph.rows["router"].num == graph.rows["experts"].num == 2
    return graph


@pytest.mark.contract
@pytest.mark.parametrize(
    "build",
    [
        grouped,
        *[lambda seed=seed: grown(seed, root=residual()) for seed in range(2)],
        *(gpt_4x128, lambda: upcycled(3)),
        mixture,
        lambda: standard("gated", tied=True, window=2, head_norm=True),
    ],
)
def test_counter_equals_torch(build: Callable[[], Graph]) -> None:
    graph = build()
    counted = by_torch(graph)
    assert by_us(graph) == counted
    pairs = all_pairs(graph)
    assert pairs is None or pairs.train.price(TENSOR_OPS) == sum(counted.values())


@given(graphs() | texts())
@settings(max_examples=30, deadline=None)
def test_counter_equals_torch_on_any_graph(graph: Graph) -> None:
    assert by_us(graph) == by_torch(graph)
