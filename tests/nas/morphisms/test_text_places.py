"""Where morphisms of text apply: what hangs together, and what is refused."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from nas import layers
from nas.graph import Graph
from nas.head import NextSymbol
from nas.layers import GELU, Add, Attention, Embedding, Experts, Linear, Product, RMSNorm, SiLU
from nas.morphisms import text
from nas.morphisms.channels import NEW
from nas.morphisms.text import GateMLP, MoreGroups, MoreHeads, Upcycle, WidenMLP, WidenStream
from nas.morphisms.text.tensor_sources import Taken
from tests.nas.graphs import wired
from tests.nas.grown import POSITIONS, SYMBOLS, knotted, mixed, proposals, standard
from tests.tables import ComesTo

Row = tuple[Any, ...]
"""A layer and what it reads."""


def built(rows: dict[str, Row]) -> Graph:
    """What stands behind an embedding of 8 features, by name."""
    return wired({"embedding": [Embedding(SYMBOLS, 8)], **rows}, POSITIONS, head=NextSymbol())


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


def with_heads(reads: list[str], summed: str) -> Graph:
    """Attention whose keys and values one Linear writes, or whose queries another layer reads, too."""
    rows: dict[str, Row] = {name: (Linear(8), "embedding") for name in reads}
    rows |= {"attention": (Attention(2, 2), *reads), "out": (Linear(8), "attention")}
    return built(rows | {"sum": (Add(), "out", summed), "symbols": (Linear(SYMBOLS), "sum")})


def test_what_does_not_fit_is_refused(comes_to_what_was_read: ComesTo) -> None:
    """Experts are made of MLPs of their form, and write as many features as they read. Zeros get no gradient
    through a squared ReLU, and attention cuts wider features into other heads."""
    for good in (GELU_MLP, GATED_MLP):
        assert isinstance(Upcycle("out", 4, 2, 0).apply(with_mlp(good)).node["out"].layer, Experts)
    names = {**vars(layers), **vars(text), **globals(), "Random": random.Random}
    gated_later = GateMLP("block1.mlp.act").apply(standard("plain"))
    comes_to_what_was_read("refused_text.txt", names | {"gated_later": gated_later})


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


def test_rows_and_columns_are_crossed() -> None:
    """Neither a run: numpy would pair two lists of numbers."""
    taken = Taken(np.array([2, NEW, 0]), np.array([1, 3, 0]))
    here, there = taken.places()
    values, found = np.arange(12.0).reshape(3, 4), np.zeros((3, 3))
    found[here] = values[there]
    assert found.tolist() == [[9, 11, 8], [0, 0, 0], [1, 3, 0]]


def test_new_heads_stand_where_old_ones_keep_their_group() -> None:
    parent = WidenStream("embedding", 24, 0).apply(standard("plain"))
    found = proposals(parent, MoreHeads, 20)
    assert {(each.heads, each.groups) for each in found if isinstance(each, MoreHeads)} == {(6, 2), (6, 3)}
    assert {morphism.groups for morphism in proposals(standard("gated"), MoreGroups, 20)} == {2, 4}  # type: ignore[attr-defined]


def test_heads_are_never_wider_than_the_stream_together() -> None:
    parent = WidenStream("embedding", 23, 0).apply(standard("plain"))
    assert not proposals(parent, MoreHeads, 20)
