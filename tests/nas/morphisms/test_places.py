"""Where morphisms of images and of text apply: the widths that hang together, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pytest

from nas import layers, morphisms
from nas.graph import INPUT, Graph
from nas.head import NextSymbol
from nas.layers import (
    GELU,
    Add,
    Attention,
    ChannelShuffle,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Embedding,
    Experts,
    GlobalPool,
    Layer,
    Linear,
    Product,
    ReLU,
    RMSNorm,
    SiLU,
)
from nas.morphisms import EnlargeKernel, Ungroup, Widen, text
from nas.morphisms.branches import _stride
from nas.morphisms.channels import NEW, Channels, follow
from nas.morphisms.text import GateMLP, MoreGroups, MoreHeads, Upcycle, WidenMLP, WidenStream
from nas.morphisms.text.tensor_sources import Taken
from nas.products import least_products
from nas.seeds import residual
from tests.nas.graphs import chain, wired
from tests.nas.grown import POSITIONS, SYMBOLS, applies, joined, knotted, mixed, plain, proposals, standard
from tests.tables import ComesTo

STEM = residual((1, 8, 8), 4, (4, 8))


def test_what_cannot_be_is_refused(comes_to_what_was_read: ComesTo) -> None:
    networks = {"residual": STEM, "plain": standard("plain"), "gated": standard("gated")}
    comes_to_what_was_read("refused.txt", {**vars(morphisms), **vars(text), **networks, "INPUT": INPUT})


@pytest.mark.parametrize("area", [(7, 7), (12, 9), (1, 5), (2**31 - 1, 3)])
def test_a_shortcut_has_the_smallest_stride_that_takes_one_area_to_the_other(area: tuple[int, int]) -> None:
    reached = {}
    for stride in range(1, 14):
        reached.setdefault(tuple((side - 1) // stride + 1 for side in area), stride)
    found = {wanted: _stride(area, wanted) for wanted in product(range(1, 14), repeat=2)}
    assert {wanted: stride for wanted, stride in found.items() if 0 < stride < 14} == {
        wanted: stride for wanted, stride in reached.items() if max(wanted) < 14
    }


def test_a_depthwise_convolution_widens_with_what_it_reads_and_stays_depthwise() -> None:
    graph = chain(Conv2d(4, 1), DepthwiseConv2d(5, 2), Conv2d(3, 1), GlobalPool(), Dense(2))
    child = EnlargeKernel("DepthwiseConv2d.1", 7).apply(Widen("Conv2d.0", 8, 0).apply(graph))
    assert child.weights["DepthwiseConv2d.1.weight"] == (8, 1, 7, 7)
    groups = chain(Conv2d(8, 1), Conv2d(8, 7, 2, groups=8), Conv2d(3, 1), GlobalPool(), Dense(2))
    assert (child.rows, least_products(child)) == (groups.rows, least_products(groups))
    for refused in (Widen("DepthwiseConv2d.1", 8, 0), Ungroup("DepthwiseConv2d.1", 1)):
        assert not applies(refused, graph)


def test_a_kernel_grows_by_as_much_padding_as_it_reaches_further() -> None:
    graph = chain(
        Conv2d(4, dilation=2), Conv2d(4, padding=0, dilation=(3, 1)), GlobalPool(), input=(4, 17, 17)
    )
    child = EnlargeKernel("Conv2d.0", 5).apply(EnlargeKernel("Conv2d.1", 5).apply(graph))
    assert child.shapes == graph.shapes
    assert child.node["Conv2d.0"].layer == Conv2d(4, 5, padding=4, dilation=2)
    assert child.node["Conv2d.1"].layer == Conv2d(4, 5, padding=(3, 1), dilation=(3, 1))


def test_runs_that_are_shuffled_grow_so_that_groups_behind_them_see_the_same() -> None:
    """Two groups behind a shuffle of three runs need six runs before it. What is added to channels that were
    not shuffled cannot grow, nor can what has no such runs."""
    graph = chain(Conv2d(12, 1), ChannelShuffle(3), Conv2d(6, 1, groups=2), GlobalPool(), Dense(2))
    found = {width for width in range(13, 40) if applies(Widen("Conv2d.0", width, 0), graph)}
    assert found == {18, 24, 30, 36}
    for width in found:
        given = Widen("Conv2d.0", width, 0).edit(graph)
        assert follow(graph, given.child, given.channels())["ChannelShuffle.1"].source.max() == 11
    few = chain(Conv2d(4, 1), ChannelShuffle(4), Conv2d(4, 1, groups=2), GlobalPool(), Dense(2))
    assert not applies(Widen("Conv2d.0", 24, 0), few)
    graph = of_images(a=[Conv2d(4, 1), INPUT], shuffle=[ChannelShuffle(2), "a"], add=[Add(), "a", "shuffle"])
    assert not applies(Widen("a", 8, 0), graph)


def of_images(**rows: Any) -> Graph:
    """The last row is pooled and classified."""
    return wired({**rows, "pool": [GlobalPool()], "classifier": [Dense(2)]}, 2, 6, 6)


def branches(names: str, **rows: Any) -> Graph:
    """Convolutions beside each other, and what is made of them."""
    return of_images(**{name: [Conv2d(4, 3), INPUT] for name in names}, **rows)


CD_AND_E = {"cd": [Concat(), "c", "d"], "ce": [Concat(), "cd", "e"]}
PARTLY_GROUPED = branches(
    "cde", **CD_AND_E, two=[Conv2d(8, 3, groups=2), "cd"], one=[Conv2d(8, 3), "ce"], add=[Add(), "one", "two"]
)
UNEVEN = chain(
    *(Conv2d(4, 3, 2, padding=0, bias=True), DepthwiseConv2d(2, padding=(1, 0)), Conv2d(4, (1, 5))),
    *(GlobalPool(), Dense(2)),
    input=(3, 21, 17),
)


def normed(norm: Layer) -> Graph:
    return chain(Conv2d(4), ReLU(), norm, Conv2d(4), GlobalPool(), Dense(2))


def widened(graph: Graph, names: Iterable[str] = (), kind: Any = Widen, width: int = 8) -> list[str]:
    """Which of these convolutions, or of all nodes, can be so wide."""
    return [name for name in names or graph.node if applies(kind(name, width, 0), graph)]


def followed(graph: Graph, name: str, *source: int, share: float = 1.0) -> object:
    """What follows, for all nodes, of channels that are made of those of the parent at one node."""
    return follow(graph, graph, {name: Channels(np.array(source), np.full(len(source), share))})


def test_where_morphisms_apply(comes_to_what_was_read: ComesTo) -> None:
    """New channels would change the mean of the others in a norm over them; what only such a norm reads is
    fixed with it. Dropout refuses copies and takes zeros. What is tied to a sum of widths keeps its width, so
    that channels lie over each other, and so do its parts where groups read it. No morphism proposes channels
    that lose the function; a new one that did would be stopped here."""
    grown = {"joined": joined, "plain": plain, "proposals": proposals}
    names = {**vars(layers), **vars(morphisms), **globals(), **grown}
    comes_to_what_was_read("places.txt", names)


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
