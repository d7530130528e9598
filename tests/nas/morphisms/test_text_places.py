"""Where morphisms of text apply: what hangs together, and what is refused."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from nas.graph import Graph
from nas.head import NextSymbol
from nas.layers import (
    GELU,
    Add,
    Attention,
    Embedding,
    Experts,
    Linear,
    Product,
    RMSNorm,
    SiLU,
    SquaredReLU,
)
from nas.morphisms import Morphism, MorphismError
from nas.morphisms.channels import NEW
from nas.morphisms.text import (
    GateMLP,
    MoreGroups,
    MoreHeads,
    Upcycle,
    WidenMLP,
    WidenStream,
)
from nas.morphisms.text.tensor_sources import Taken
from tests.nas.graphs import Draft
from tests.nas.grown import POSITIONS, SYMBOLS, knotted, mixed, proposals, standard


def test_a_gated_mlp_gets_no_second_gate() -> None:
    child = GateMLP("block1.mlp.act").apply(standard("plain"))
    with pytest.raises(MorphismError):
        GateMLP("block1.mlp.act").apply(child)
    with pytest.raises(MorphismError, match="no plain MLP"):
        GateMLP.propose(child, random.Random(0))


Row = tuple[Any, ...]
"""A layer and what it reads."""


def built(rows: dict[str, Row]) -> Graph:
    """What stands behind an embedding of 8 features, by name."""
    draft = Draft()
    draft.put("embedding", Embedding(SYMBOLS, 8))
    for name, (layer, *reads) in rows.items():
        draft.put(name, layer, *reads)
    return draft.graph(POSITIONS, head=NextSymbol())


def with_mlp(rows: dict[str, Row]) -> Graph:
    """Its last node is "out", which is added to the stream."""
    ends: dict[str, Row] = {"sum": (Add(), "norm", "out"), "symbols": (Linear(SYMBOLS), "sum")}
    return built({"norm": (RMSNorm(), "embedding"), **rows, **ends})


GELU_MLP: dict[str, Row] = {"in": (Linear(12), "norm"), "act": (GELU(), "in"), "out": (Linear(8), "act")}
GATED_MLP: dict[str, Row] = {
    "in": (Linear(12), "norm"),
    "gate": (Linear(12), "norm"),
    "act": (SiLU(), "gate"),
    "product": (Product(), "act", "in"),
    "out": (Linear(8), "product"),
}
UNREAD = {name: row for name, row in GATED_MLP.items() if name != "in"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({**GELU_MLP, "act": (SquaredReLU(), "in")}, "neither a GELU nor a product"),
        ({**GELU_MLP, "out": (Linear(8, bias=True), "act")}, "out is no Linear without a bias"),
        ({**GELU_MLP, "in": (Linear(12, bias=True), "norm")}, "in is no Linear without a bias"),
        ({**GATED_MLP, "act": (GELU(), "gate")}, "product is no product with a SiLU"),
        ({**GATED_MLP, "gate": (Linear(12, bias=True), "norm")}, "gate is no Linear without a bias"),
        ({**GATED_MLP, "gate": (Linear(12), "embedding")}, "different tensors"),
        ({**UNREAD, "product": (Product(), "act", "act")}, "act is not read"),
    ],
)
def test_experts_are_made_of_mlps_of_their_form_alone(rows: dict[str, Row], message: str) -> None:
    for good in (GELU_MLP, GATED_MLP):
        assert isinstance(Upcycle("out", 4, 2, 0).apply(with_mlp(good)).node["out"].layer, Experts)
    with pytest.raises(MorphismError, match=message):
        Upcycle("out", 4, 2, 0).apply(with_mlp(rows))


def test_experts_write_as_many_features_as_they_read() -> None:
    graph = built({**GELU_MLP, "in": (Linear(12), "embedding"), "out": (Linear(SYMBOLS), "act")})
    with pytest.raises(MorphismError, match="out is not as wide as embedding, which the MLP reads"):
        Upcycle("out", 4, 2, 0).apply(graph)


@pytest.mark.parametrize("morphism", [WidenMLP("block1.mlp.out", 24, 0), GateMLP("block1.mlp.out")])
def test_experts_are_no_mlp(morphism: Morphism) -> None:
    with pytest.raises(MorphismError):
        morphism.apply(mixed())
    with pytest.raises(MorphismError, match="is no Linear"):
        Upcycle("block1.mlp.out", 4, 2, 0).apply(mixed())


def test_what_hangs_together_is_widened_together() -> None:
    parent = knotted()
    stream = {"a", "b", "straight", "one", "two", "out"}
    norms = {"norm1", "norm2", "norm3", "norm4"}
    for node in stream:
        child = WidenStream(node, 16, 0).apply(parent)
        wider = {name for name in parent.node if child.node[name].layer != parent.node[name].layer}
        assert wider == stream | norms
    child = WidenStream("block1.mlp.out", 16, 0).apply(mixed())  # by the name of the experts
    assert child.shapes["block1.mlp.out"] == (POSITIONS, 16)
    child = WidenMLP("loop", 20, 0).apply(parent)
    wider = {name for name in parent.node if child.node[name].layer != parent.node[name].layer}
    assert wider == {"left", "right", "loop"}


@pytest.mark.parametrize(
    "inside", [(SquaredReLU(), "norm"), (Attention(2, 2), *["norm"] * 3)], ids=["act", "attention"]
)
def test_a_stream_is_read_by_linears_alone(inside: Row) -> None:
    """Zeros get no gradient through a squared ReLU, and attention cuts wider features into other heads."""
    graph = built(
        {"norm": (RMSNorm(), "embedding"), "inside": inside, "symbols": (Linear(SYMBOLS), "inside")}
    )
    with pytest.raises(MorphismError, match="residual stream"):
        WidenStream("embedding", 16, 0).apply(graph)
    with pytest.raises(MorphismError, match="residual stream"):
        WidenStream.propose(graph, random.Random(0))


@pytest.mark.parametrize(("reads", "summed"), [(["q", "kv", "kv"], "embedding"), (["q", "k", "v"], "q")])
def test_heads_whose_keys_are_shared_stay_as_they_are(reads: list[str], summed: str) -> None:
    """One Linear for keys and values, and one for queries that another layer reads, too."""
    rows: dict[str, Row] = {name: (Linear(8), "embedding") for name in reads}
    rows |= {"attention": (Attention(2, 2), *reads), "out": (Linear(8), "attention")}
    rows |= {"sum": (Add(), "out", summed), "symbols": (Linear(SYMBOLS), "sum")}
    with pytest.raises(MorphismError, match="three Linears of its own"):
        MoreHeads("attention", 4, 2, 0).apply(built(rows))


def test_rows_and_columns_are_crossed() -> None:
    """Neither a run: numpy would pair two lists of numbers."""
    taken = Taken(np.array([2, NEW, 0]), np.array([1, 3, 0]))
    here, there = taken.places()
    values, found = np.arange(12.0).reshape(3, 4), np.zeros((3, 3))
    found[here] = values[there]
    assert found.tolist() == [[9, 11, 8], [0, 0, 0], [1, 3, 0]]


def test_new_heads_stand_where_old_ones_keep_their_group() -> None:
    parent = standard("plain")
    for morphism in proposals(parent, MoreHeads, 20):
        assert isinstance(morphism, MoreHeads)
        assert (morphism.heads, morphism.groups) in {(6, 2), (6, 3)}
    assert {morphism.groups for morphism in proposals(parent, MoreHeads, 20)} == {2, 3}  # type: ignore[attr-defined]
    assert {morphism.groups for morphism in proposals(standard("gated"), MoreGroups, 20)} == {2, 4}  # type: ignore[attr-defined]
