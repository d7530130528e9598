"""Where morphisms apply: the widths that hang together, and what is refused."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from nas import morphisms
from nas.graph import INPUT, Graph
from nas.layers import (
    Add,
    ChannelNorm,
    ChannelShuffle,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Dropout,
    GlobalPool,
    GroupNorm,
    ReLU,
)
from nas.morphisms import (
    ConcatSkip,
    DeepenBasic,
    EnlargeKernel,
    MorphismError,
    Ungroup,
    Widen,
    WidenByCopies,
    text,
)
from nas.morphisms.branches import _stride
from nas.morphisms.channels import Channels, follow
from nas.products import least_products
from nas.seeds import residual
from tests.nas.graphs import chain, wired
from tests.nas.grown import applies, joined, plain, proposals, standard
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


def test_groups_merge_into_a_divisor_only() -> None:
    graph = chain(Conv2d(12, 1), ReLU(), Conv2d(12, 3, groups=6), GlobalPool())
    assert [groups for groups in range(-1, 8) if applies(Ungroup("Conv2d.2", groups), graph)] == [1, 2, 3]


def test_a_depthwise_convolution_widens_with_what_it_reads_and_stays_depthwise() -> None:
    graph = chain(Conv2d(4, 1), DepthwiseConv2d(5, 2), Conv2d(3, 1), GlobalPool(), Dense(2))
    child = EnlargeKernel("DepthwiseConv2d.1", 7).apply(Widen("Conv2d.0", 8, 0).apply(graph))
    assert child.weights["DepthwiseConv2d.1.weight"] == (8, 1, 7, 7)
    groups = chain(Conv2d(8, 1), Conv2d(8, 7, 2, groups=8), Conv2d(3, 1), GlobalPool(), Dense(2))
    assert (child.rows, least_products(child)) == (groups.rows, least_products(groups))
    for refused in (Widen("DepthwiseConv2d.1", 8, 0), Ungroup("DepthwiseConv2d.1", 1)):
        assert not applies(refused, graph)


def test_kernels_that_are_not_square_or_get_no_whole_margin_do_not_grow() -> None:
    graph = chain(
        *(Conv2d(4, 3, 2, padding=0, bias=True), DepthwiseConv2d(2, padding=(1, 0)), Conv2d(4, (1, 5))),
        *(GlobalPool(), Dense(2)),
        input=(3, 21, 17),
    )
    for refused in (EnlargeKernel("Conv2d.2", 7), EnlargeKernel("Conv2d.0", 4), EnlargeKernel("Conv2d.0", 3)):
        assert not applies(refused, graph)
    found = {m.node for m in proposals(graph, EnlargeKernel, 20) if isinstance(m, EnlargeKernel)}
    assert found == {"Conv2d.0", "DepthwiseConv2d.1"}


def test_a_kernel_grows_by_as_much_padding_as_it_reaches_further() -> None:
    graph = chain(
        Conv2d(4, dilation=2), Conv2d(4, padding=0, dilation=(3, 1)), GlobalPool(), input=(4, 17, 17)
    )
    child = EnlargeKernel("Conv2d.0", 5).apply(EnlargeKernel("Conv2d.1", 5).apply(graph))
    assert child.shapes == graph.shapes
    assert child.node["Conv2d.0"].layer == Conv2d(4, 5, padding=4, dilation=2)
    assert child.node["Conv2d.1"].layer == Conv2d(4, 5, padding=(3, 1), dilation=(3, 1))


def test_what_a_norm_over_channels_reads_keeps_its_width() -> None:
    """New channels would change the mean of the others. What only such a norm reads is fixed with it."""
    for norm in (GroupNorm(2), ChannelNorm()):
        graph = chain(Conv2d(4), ReLU(), norm, Conv2d(4), GlobalPool(), Dense(2))
        assert [name for name in graph.node if applies(Widen(name, 8, 0), graph)] == ["Conv2d.3"]
        assert not applies(ConcatSkip("Conv2d.0", "ReLU.1", 0), graph)
        with pytest.raises(MorphismError, match=r"Norm\.2: it takes numbers over all of its channels$"):
            follow(graph, graph, {"ReLU.1": Channels(np.arange(4)[::-1], np.ones(4))})


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


def test_dropout_refuses_copies_and_takes_zeros() -> None:
    graph = plain()
    assert not applies(WidenByCopies("Conv2d.0", 16, 0), graph)
    assert applies(Widen("Conv2d.0", 16, 0), graph)
    assert applies(WidenByCopies("Conv2d.4", 12, 0), graph)
    assert not applies(WidenByCopies("Dense.15", 40, 0), graph)  # its dropout is that of the features
    assert not applies(DeepenBasic("Conv2d.0", 8, 0), graph)


def of_images(**rows: Any) -> Graph:
    """The last row is pooled and classified."""
    return wired({**rows, "pool": [GlobalPool()], "classifier": [Dense(2)]}, 2, 6, 6)


def test_dropout_behind_a_concatenation_refuses_copies_too() -> None:
    rows = {name: [Conv2d(4, 3), INPUT] for name in "ab"}
    graph = of_images(**rows, ab=[Concat(), "a", "b"], drop=[Dropout(0.5), "ab"], c=[Conv2d(4, 1), "drop"])
    assert [name for name in "abc" if applies(WidenByCopies(name, 8, 0), graph)] == ["c"]
    assert [name for name in "abc" if applies(Widen(name, 8, 0), graph)] == ["a", "b", "c"]


def test_what_a_sum_of_widths_is_tied_to_cannot_widen() -> None:
    """f and g make h, which is added to i."""
    graph = joined()
    free = {name for name in ("a", "b", "d", "f", "g", "i") if applies(Widen(f"{name}.conv", 24, 0), graph)}
    assert free == {"a", "b", "d"}


def test_two_sums_of_widths_that_are_added_fix_their_parts() -> None:
    """Whichever grew, the channels would no longer lie over each other."""
    rows = {name: [Conv2d(4, 3), INPUT] for name in "ab"}
    graph = of_images(**rows, ab=[Concat(), "a", "b"], ba=[Concat(), "b", "a"], add=[Add(), "ab", "ba"])
    assert not any(applies(Widen(name, 8, 0), graph) for name in "ab")


def test_groups_that_read_a_sum_of_widths_fix_its_parts() -> None:
    """c is read by groups, d by groups behind another concatenation, e by none."""
    rows = {name: [Conv2d(4, 3), INPUT] for name in "cde"} | {
        "cd": [Concat(), "c", "d"],
        "ce": [Concat(), "cd", "e"],
    }
    two, one = Conv2d(8, 3, groups=2), Conv2d(8, 3)
    graph = of_images(**rows, two=[two, "cd"], one=[one, "ce"], add=[Add(), "one", "two"])
    assert [name for name in "cde" if applies(Widen(name, 8, 0), graph)] == ["e"]
    assert not applies(ConcatSkip("c", "d", 0), graph)
    assert applies(ConcatSkip("c", "e", 0), graph)
    assert not any(applies(Widen(name, 8, 0), of_images(**rows, two=[two, "ce"])) for name in "cde")


def test_what_is_tied_or_grouped_is_not_followed_where_it_would_lose_the_function() -> None:
    """No morphism proposes such channels; a new one that did would be stopped here."""
    backwards = Channels(np.arange(8)[::-1], np.ones(8))
    residual_block = residual((1, 8, 8), 4, (8,))
    with pytest.raises(MorphismError, match="channels that are widened differently"):
        follow(residual_block, residual_block, {"stage1.block1.2.bn": backwards})
    grouped = chain(Conv2d(8, 1), Conv2d(8, 3, groups=2), GlobalPool(), Dense(4))
    read = grouped.nodes[1].inputs[0]
    with pytest.raises(MorphismError, match="would not see the channels that they saw"):
        follow(grouped, grouped, {read: backwards})
    assert follow(grouped, grouped, {}) == {}
    with pytest.raises(MorphismError, match="it tears copies of a channel apart"):
        follow(plain(), plain(), {"Conv2d.0": Channels(np.arange(8), np.full(8, 0.5))})
