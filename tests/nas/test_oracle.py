"""Our counter against torch's, which counts what is really executed and knows nothing of our rules.

Torch's does not see the causal triangle: it has T² pairs, which are 2T/(T + 1) times those that we count.
test_layers counts the pairs one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from math import prod
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from nas.graph import Graph
from nas.head import NextSymbol
from nas.layers import Add, Attention, Embedding, Experts, Linear
from nas.modules import Network
from nas.morphisms.text import DeepenPlain, Nonlinearity, Upcycle
from nas.ops import TENSOR_OPS
from nas.products import all_pairs
from nas.seeds import residual
from nas.text_seeds import gpt_4x128, llama_4x128
from tests.nas.graphs import graphs, grouped, texts, wired
from tests.nas.grown import grown, standard


def gradients_of_a_convolution(grad: Any, reads: Any, weight: Any, *rest: Any, out_shape: Any = None) -> int:
    """Each gradient that is wanted has the products of the forward pass: of every element out, those with one
    kernel of its group. torch 2.13 multiplies the weights' by the number of groups."""
    wanted = rest[-1]
    return int(2 * sum(wanted[:2]) * prod(grad) * prod(weight[1:]))


def by_torch(graph: Graph, batch: int = 2) -> Counter[tuple[str, str]]:
    """Operations for one example as `FlopCounterMode` has them, by pass: products of batches are those of
    attention, all others of layers."""
    with torch.device("meta"):
        kind = torch.int64 if isinstance(graph.head, NextSymbol) else torch.float32
        network, examples = Network(graph), torch.zeros(batch, *graph.input, dtype=kind)
        right = torch.zeros(
            batch * (graph.input[0] if isinstance(graph.head, NextSymbol) else 1), dtype=torch.int64
        )
    formulas = {torch.ops.aten.convolution_backward: gradients_of_a_convolution}
    counter = FlopCounterMode(display=False, custom_mapping=formulas)
    with sdpa_kernel([SDPBackend.MATH]), counter:
        loss = F.cross_entropy(network(examples).flatten(0, -2), right)
        forward = dict(counter.get_flop_counts()["Global"])
        loss.backward()
    found: Counter[tuple[str, str]] = Counter()
    for operator, number in counter.get_flop_counts()["Global"].items():
        kind_of = "attention" if operator is torch.ops.aten.bmm else "layers"
        found[kind_of, "forward"] += forward.get(operator, 0)
        found[kind_of, "backward"] += number - forward.get(operator, 0)
    assert all(number % batch == 0 for number in found.values())
    return Counter({what: number // batch for what, number in found.items()})


def by_us(graph: Graph) -> Counter[tuple[str, str]]:
    """As `by_torch`, with T² pairs."""
    found: Counter[tuple[str, str]] = Counter()
    for name, row in graph.rows.items():
        if name != "attention":
            for direction in ("forward", "backward"):
                found["layers", direction] += getattr(row.cost, direction).price(TENSOR_OPS)
    for node in graph.nodes:
        if isinstance(node.layer, Attention):
            positions, counted = graph.input[0], node.layer.costs(*graph.reads(node))["attention"]
            pairs = sum(min(place + 1, node.layer.window or positions) for place in range(positions))
            for direction in ("forward", "backward"):
                price = getattr(counted, direction).price(TENSOR_OPS)
                found["attention", direction] += price * Fraction(positions**2, pairs)
    return found


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
