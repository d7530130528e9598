"""Morphisms as edits of a graph: what they name, how they are recorded, how fast they are."""

from __future__ import annotations

import json
import random
import statistics
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas.graph import Graph
from nas.layers import (
    Concat,
    Dropout,
    Flatten,
    Gate,
)
from nas.morphisms import (
    MIX,
    TEXT_MIX,
    DeepenBasic,
    DeepenBottleneck,
    EnlargeKernel,
    Morphism,
    MorphismError,
    Skip,
    Widen,
    WidenByCopies,
    WidenTrunk,
    WidenTrunkByCopies,
)
from nas.record import decode, encode, graph_from_json, graph_to_json
from nas.seeds import residual, resnet50
from nas.weights import digest
from tests.nas.graphs import graphs
from tests.nas.grown import KINDS, PARENTS, grown, proposals, randomised

WIDENINGS = (Widen, WidenByCopies, WidenTrunk, WidenTrunkByCopies)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_finds_many_places(kind: type[Morphism]) -> None:
    found = {name: len(proposals(PARENTS[name](), kind, 10)) for name in PARENTS}
    assert sum(num >= 2 for num in found.values()) >= 2, found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PARENTS)
def test_what_is_proposed_applies_and_is_recorded(name: str, kind: type[Morphism]) -> None:
    parent = PARENTS[name]()
    before = repr(parent)
    for morphism in proposals(parent, kind, 5):
        assert type(morphism) is kind
        child = morphism.apply(parent)
        assert child.key != parent.key
        assert (child.input, child.classes) == (parent.input, parent.classes)
        # Names survive, in their order; new ones are short however long the lineage.
        assert [node.name for node in child.nodes if node.name in parent.node] == list(parent.node)
        assert max(map(len, child.node.keys() - parent.node.keys()), default=0) < 20
        assert morphism.apply(parent) == child
        assert decode(Morphism, json.loads(json.dumps(encode(morphism)))) == morphism
        assert graph_from_json(json.dumps(graph_to_json(child))) == child
    assert repr(parent) == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PARENTS)
def test_the_parents_weights_are_untouched(name: str, kind: type[Morphism]) -> None:
    parent = PARENTS[name]()
    weights = randomised(parent, 1)
    before = digest(weights)
    for morphism in proposals(parent, kind, 3):
        child = morphism.apply(parent)
        carried = morphism.carry(parent, weights)
        assert {name: values.shape for name, values in carried.items()} == {
            **child.weights,
            **child.statistics,
        }
        assert {values.dtype for values in carried.values()} == {weights[next(iter(weights))].dtype}
        momentum = morphism.carry_state(parent, weights)
        assert {name: values.shape for name, values in momentum.items()} == dict(child.weights)
        assert digest(morphism.carry(parent, weights)) == digest(carried)
    assert digest(weights) == before


@settings(max_examples=60)
@given(graphs(), st.sampled_from(KINDS), st.integers(0, 1 << 20))
def test_any_graph_has_a_child_or_no_place(graph: Graph, kind: type[Morphism], seed: int) -> None:
    try:
        morphism = kind.propose(graph, random.Random(seed))
    except MorphismError:
        return
    child = morphism.apply(graph)
    assert set(morphism.carry(graph, randomised(graph, 0))) == {*child.weights, *child.statistics}


def test_new_names_count_on() -> None:
    graph = seed = residual((1, 8, 8), 4, (4, 8))
    for _ in range(11):
        graph = DeepenBasic("stem.relu", 4, 0).apply(graph)
    assert {name.split(".")[0] for name in graph.node.keys() - seed.node.keys()} == {
        f"block{number}" for number in range(1, 12)
    }
    child = Skip("stem.relu", "stage2.block1.2.bn", 0).apply(graph)
    assert sorted(child.node.keys() - graph.node.keys()) == ["skip1.add", "skip1.bn", "skip1.conv"]


def test_small_networks_grow_fast() -> None:
    """Widths by half or double, in multiples of 8, or of 4 below 8; kernels by two."""
    graph = residual((1, 32, 32), 10, (4, 8, 16))
    for kind in WIDENINGS:
        for morphism in proposals(graph, kind, 40):
            assert isinstance(morphism, WIDENINGS)
            width = graph.shapes[morphism.node][0]
            assert 1.5 * width <= morphism.channels <= 2 * width
            assert morphism.channels % (8 if width > 4 else 4) == 0
    assert {m.kernel for m in proposals(graph, EnlargeKernel, 20) if isinstance(m, EnlargeKernel)} == {5}


def test_the_mix_is_all_there_is() -> None:
    assert sum(MIX.values()) == pytest.approx(1)
    assert {*MIX, *TEXT_MIX} == set(Morphism.__subclasses__())


def test_a_step_of_a_search_takes_milliseconds() -> None:
    """Proposing and applying, for a child of 250 nodes; measured beside other work, so by processor time."""
    parent = resnet50((3, 64, 64), 10)
    rng = random.Random(3)
    while len(parent.nodes) < 250:
        parent = DeepenBottleneck.propose(parent, rng).apply(parent)
    seconds = []
    for _ in range(20):
        for kind in KINDS:
            fresh = Graph(parent.input, parent.nodes)
            began = time.process_time()
            try:
                kind.propose(fresh, rng).apply(fresh)
            except MorphismError:
                continue
            seconds.append(time.process_time() - began)
    assert statistics.median(seconds) < 0.005


def test_a_lineage_can_be_replayed() -> None:
    assert grown(5, 12) == grown(5, 12)
    assert grown(5, 12) != grown(6, 12)


def test_flatten_and_dropout_are_in_the_parents() -> None:
    kinds = {type(node.layer) for name in PARENTS for node in PARENTS[name]().nodes}
    assert {Flatten, Dropout, Gate, Concat} <= kinds
