"""Morphisms as edits of a graph: where they apply, what they name, count and record."""

from __future__ import annotations

import json
import random
import statistics
import time
from collections import Counter
from dataclasses import astuple, replace
from fractions import Fraction
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas.graph import INPUT, Graph, Node
from nas.layers import (
    Add,
    BatchNorm,
    Concat,
    Conv2d,
    Dense,
    Dropout,
    Flatten,
    Gate,
    GlobalPool,
    Layer,
    ReLU,
    Shape,
    ShapeError,
)
from nas.morphisms import (
    MIX,
    BranchSplit,
    ConcatSkip,
    DeepenBasic,
    DeepenBottleneck,
    EnlargeKernel,
    Morphism,
    MorphismError,
    Skip,
    SqueezeExcite,
    Ungroup,
    Widen,
    WidenByCopies,
    WidenTrunk,
    WidenTrunkByCopies,
)
from nas.ops import Cost
from nas.record import decode, encode, graph_from_json, graph_to_json
from nas.seeds import residual, resnet50
from nas.weights import digest
from tests.nas.graphs import chain, graphs
from tests.nas.grown import KINDS, PARENTS, grown, joined, plain, proposals, randomised

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
        assert morphism.applies(parent)
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
        momentum = morphism.carry_momentum(parent, weights)
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


@pytest.mark.parametrize("kind", KINDS)
def test_applies_agrees_with_success(kind: type[Morphism]) -> None:
    """Morphisms moved to other nodes, and those of another graph."""
    found: Counter[bool] = Counter()
    foreign: list[Morphism] = []
    for name in PARENTS:
        parent = PARENTS[name]()
        weights = randomised(parent, 0)
        own = proposals(parent, kind, 2)
        nodes = [*random.Random(0).sample(list(parent.node), 6), INPUT, "nowhere"]
        moved = [replace(morphism, node=node) for morphism in own for node in nodes]  # type: ignore[call-arg]
        foreign, others = own, foreign
        for morphism in own + moved + others:
            try:
                child = morphism.apply(parent)
                assert set(morphism.carry(parent, weights)) == {*child.weights, *child.statistics}
                success = True
            except (MorphismError, ShapeError):
                success = False
            assert morphism.applies(parent) == success
            found[success] += 1
    assert min(found[True], found[False]) >= 3, found


STEM = residual((1, 8, 8), 4, (4, 8))


@pytest.mark.parametrize(
    "morphism",
    [
        Widen("nowhere", 8, 0),
        Widen("stem.relu", 8, 0),
        Widen("stem.conv", 8, 0),  # tied
        Widen("classifier", 8, 0),  # the classes
        Widen("stage1.block1.1.conv", 4, 0),
        Widen("stage1.block1.1.conv", 3, 0),
        WidenTrunk("stage1.block1.1.conv", 8, 0),  # alone
        WidenByCopies("stage1.block1.1.conv", 9, 0),
        DeepenBasic("stem.bn", 4, 0),  # may be negative
        DeepenBasic("pool", 4, 0),
        DeepenBasic("stem.relu", 0, 0),
        DeepenBasic("stage2.block1.relu", 8, 0, kernel=9),
        DeepenBasic("stem.relu", 4, 0, kernel=2),
        DeepenBottleneck("stem.relu", 4, 0, groups=3),
        DeepenBottleneck(INPUT, 4, 0),
        EnlargeKernel("stem.conv", 3),
        EnlargeKernel("stem.conv", 4),
        EnlargeKernel("stem.conv", 17),
        EnlargeKernel("stem.bn", 5),
        Skip("stem.relu", "stem.relu", 0),
        Skip("stage2.block1.relu", "stem.bn", 0),
        Skip("stem.relu", "pool", 0),
        Skip("pool", "classifier", 0),
        Skip("nowhere", "stem.bn", 0),
        ConcatSkip("stem.relu", "stage1.block1.2.bn", 0),  # an addition ties it
        ConcatSkip("stem.relu", "stage2.block1.1.relu", 0),  # another area
        ConcatSkip("stem.relu", "classifier", 0),
        SqueezeExcite("stem.bn", 4, 0),
        SqueezeExcite("pool", 4, 0),
        SqueezeExcite("stem.relu", 0, 0),
        BranchSplit("stem.conv", 0.75),
        BranchSplit("stem.bn", 0.25),
        BranchSplit("stem.bn", 1.0),
        BranchSplit("stem.bn", float("nan")),
        Ungroup("stem.conv", 1),
        Ungroup("stem.bn", 1),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(morphism: Morphism) -> None:
    assert not morphism.applies(STEM)
    with pytest.raises((MorphismError, ShapeError)):
        morphism.apply(STEM)


def test_groups_merge_into_a_divisor_only() -> None:
    graph = chain(Conv2d(12, 1), ReLU(), Conv2d(12, 3, groups=6), GlobalPool())
    assert [groups for groups in range(-1, 8) if Ungroup("Conv2d.2", groups).applies(graph)] == [1, 2, 3]


def test_dropout_refuses_copies_and_takes_zeros() -> None:
    graph = plain()
    assert not WidenByCopies("0.Conv2d", 16, 0).applies(graph)
    assert Widen("0.Conv2d", 16, 0).applies(graph)
    assert WidenByCopies("4.Conv2d", 12, 0).applies(graph)
    assert not WidenByCopies("15.Dense", 40, 0).applies(graph)  # its dropout is that of the features
    assert not DeepenBasic("0.Conv2d", 8, 0).applies(graph)


def test_dropout_behind_a_concatenation_refuses_copies_too() -> None:
    nodes = [Node(name, Conv2d(4, 3), (INPUT,)) for name in "ab"]
    nodes += [Node("ab", Concat(), ("a", "b")), Node("drop", Dropout(0.5), ("ab",))]
    nodes += [
        Node("c", Conv2d(4, 1), ("drop",)),
        Node("pool", GlobalPool(), ("c",)),
        Node("d", Dense(2), ("pool",)),
    ]
    graph = Graph((1, 4, 4), tuple(nodes))
    assert [name for name in "abc" if WidenByCopies(name, 8, 0).applies(graph)] == ["c"]
    assert [name for name in "abc" if Widen(name, 8, 0).applies(graph)] == ["a", "b", "c"]


def test_a_trunk_is_all_that_additions_and_gates_tie() -> None:
    graph = resnet50((3, 32, 32), 10)
    child = WidenTrunk("stage2.block3.3.conv", 640, 0).apply(graph)
    wider = {name for name in graph.node if child.node[name].layer != graph.node[name].layer}
    assert wider == {f"stage2.block{number}.3.conv" for number in (1, 2, 3, 4)} | {
        "stage2.block1.shortcut.conv"
    }
    gated = SqueezeExcite("stage1.block1.1.relu", 8, 0).apply(graph)
    child = WidenTrunk("stage1.block1.1.conv", 96, 0).apply(gated)
    wider = {name for name in gated.node if child.node[name].layer != gated.node[name].layer}
    assert wider == {"stage1.block1.1.conv", "gate1.excite"}


def test_what_a_sum_of_widths_is_tied_to_cannot_widen() -> None:
    """f and g make h, which is added to i."""
    graph = joined()
    free = {name for name in ("a", "b", "d", "f", "g", "i") if Widen(f"{name}.conv", 24, 0).applies(graph)}
    assert free == {"a", "b", "d"}


def test_two_sums_of_widths_that_are_added_fix_their_parts() -> None:
    """Whichever grew, the channels would no longer lie over each other."""
    nodes = [Node(name, Conv2d(4, 3), (INPUT,)) for name in "ab"]
    nodes += [
        Node("ab", Concat(), ("a", "b")),
        Node("ba", Concat(), ("b", "a")),
        Node("add", Add(), ("ab", "ba")),
    ]
    graph = Graph((2, 6, 6), (*nodes, Node("pool", GlobalPool(), ("add",)), Node("d", Dense(2), ("pool",))))
    assert not any(Widen(name, 8, 0).applies(graph) for name in "ab")


def test_groups_that_read_a_sum_of_widths_fix_its_parts() -> None:
    """c is read by groups, d by groups behind another concatenation, e by none."""
    nodes = [Node(name, Conv2d(4, 3), (INPUT,)) for name in "cde"]
    nodes += [Node("cd", Concat(), ("c", "d")), Node("ce", Concat(), ("cd", "e"))]
    nodes += [Node("two", Conv2d(8, 3, groups=2), ("cd",)), Node("one", Conv2d(8, 3), ("ce",))]
    nodes += [Node("add", Add(), ("one", "two")), Node("pool", GlobalPool(), ("add",))]
    graph = Graph((2, 6, 6), tuple(nodes))
    assert [name for name in "cde" if Widen(name, 8, 0).applies(graph)] == ["e"]
    assert not ConcatSkip("c", "d", 0).applies(graph)
    assert ConcatSkip("c", "e", 0).applies(graph)
    last = [*nodes[:5], Node("two", Conv2d(8, 3, groups=2), ("ce",)), Node("pool", GlobalPool(), ("two",))]
    assert not any(Widen(name, 8, 0).applies(Graph((2, 6, 6), tuple(last))) for name in "cde")


def test_new_names_count_on() -> None:
    graph = STEM
    for _ in range(11):
        graph = DeepenBasic("stem.relu", 4, 0).apply(graph)
    assert {name.split(".")[0] for name in graph.node.keys() - STEM.node.keys()} == {
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
    assert set(MIX) == set(Morphism.__subclasses__())


# --- The change of the operation count, predicted from the parent and the morphism alone -------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PARENTS)
def test_the_count_changes_as_predicted(name: str, kind: type[Morphism]) -> None:
    parent = PARENTS[name]()
    for morphism in proposals(parent, kind, 3):
        change = _less(_vector(morphism.apply(parent).cost), _vector(parent.cost))
        assert change == _predicted(parent, morphism), morphism


Vector = list[Fraction]


def _vector(cost: Cost) -> Vector:
    passes = (cost.forward, cost.input_grad, cost.weight_grad, cost.evaluate)
    return [Fraction(kind) for one in passes for kind in astuple(one)]


def _plus(*vectors: Vector) -> Vector:
    return [sum(kinds, Fraction()) for kinds in zip(*vectors)]


def _less(one: Vector, other: Vector) -> Vector:
    return [a - b for a, b in zip(one, other)]


def _times(vector: Vector, factor: Fraction) -> Vector:
    return [kind * factor for kind in vector]


def _of(layer: Layer, *reads: Shape, trained: bool = True) -> Vector:
    """One layer's operations by its closed forms; `trained`: something above it has weights."""
    costs = list(layer.costs(*reads).values())
    return _plus(
        *[_vector(cost if trained else replace(cost, input_grad=type(cost.input_grad)())) for cost in costs]
    )


def _fork(size: int) -> Vector:
    """One more reader of a tensor whose gradient is needed: an addition an element."""
    return [Fraction(size if place == 8 else 0) for place in range(28)]


def _predicted(parent: Graph, morphism: Morphism) -> Vector:
    if isinstance(morphism, WIDENINGS):
        ratios = dict.fromkeys(
            _tied(parent, morphism.node), Fraction(morphism.channels, parent.shapes[morphism.node][0])
        )
        return _scaled(parent, ratios, {})
    if isinstance(morphism, ConcatSkip):
        own, more = parent.shapes[morphism.node], parent.shapes[morphism.source]
        ratio = Fraction(own[0] + more[0], own[0])
        source = [_fork(prod(more))] if morphism.source in parent.trained else []
        return _plus(_scaled(parent, {}, {morphism.node: ratio}), *source)
    if isinstance(morphism, (EnlargeKernel, Ungroup)):
        node = parent.node[morphism.node]
        layer = node.layer
        assert isinstance(layer, Conv2d)
        if isinstance(morphism, EnlargeKernel):
            factor = Fraction(morphism.kernel, layer.kernel) ** 2
        else:
            factor = Fraction(layer.groups, morphism.groups)
        return _times(_charged(parent, node), factor - 1)
    shape = parent.shapes[morphism.node]  # type: ignore[attr-defined]
    area, size = shape[1:], prod(shape)
    if isinstance(morphism, (DeepenBasic, DeepenBottleneck)):
        inner = (morphism.channels, *area)
        middle = morphism.kernel
        layers: list[tuple[Layer, Shape]]
        if isinstance(morphism, DeepenBasic):
            layers = [(Conv2d(inner[0], middle), shape), (Conv2d(shape[0], middle), inner)]
        else:
            layers = [(Conv2d(inner[0], 1), shape), (Conv2d(inner[0], middle, 1, morphism.groups), inner)]
            layers += [(Conv2d(shape[0], 1), inner)]
        layers += [(BatchNorm(), inner), (ReLU(), inner)] * (len(layers) - 1) + [
            (BatchNorm(), shape),
            (ReLU(), shape),
        ]
        parts = [_of(layer, read) for layer, read in layers]
        return _plus(*parts, _of(Add(), shape, shape), _fork(size))
    if isinstance(morphism, SqueezeExcite):
        channels, features = shape[:1], (morphism.features,)
        return _plus(
            _of(GlobalPool(), shape),
            _of(Dense(features[0]), channels),
            _of(ReLU(), features),
            _of(Dense(channels[0]), features),
            _of(Gate(), shape, channels),
            _fork(size),
        )
    if isinstance(morphism, Skip):
        start = parent.shapes[morphism.source]
        stride = -(-start[1] // shape[1])
        trained = morphism.source in parent.trained
        new = _of(Conv2d(shape[0], 1, stride), start, trained=trained)
        forks = [_fork(prod(start))] if trained else []
        return _plus(new, _of(BatchNorm(), shape), _of(Add(), shape, shape), *forks)
    assert isinstance(morphism, BranchSplit)
    conv = parent.node[parent.node[morphism.node].inputs[0]]
    (entry,) = conv.inputs
    forks = [_fork(prod(parent.shapes[entry]))] if entry in parent.trained else []
    return _plus(_charged(parent, conv), _of(BatchNorm(), shape), _of(Add(), shape, shape), *forks)


def _charged(graph: Graph, node: Node) -> Vector:
    trained = any(name in graph.trained for name in node.inputs)
    return _of(node.layer, *graph.reads(node), trained=trained)


def _tied(graph: Graph, start: str) -> set[str]:
    """What elementwise layers connect to a tensor, upwards and downwards, until nothing is added."""
    found, before = {start}, 0
    while len(found) > before:
        before = len(found)
        for node in graph.nodes:
            if not isinstance(node.layer, (Conv2d, Dense, Concat)) and found & {node.name, *node.inputs}:
                found |= {node.name, *node.inputs}
    return found


def _scaled(graph: Graph, ratios: dict[str, Fraction], as_read: dict[str, Fraction]) -> Vector:
    """The change when tensors get `ratios` times their channels; `as_read` are longer for readers only.

    Convolutions and dense layers cost in proportion to the channels on either side, all else to its own.
    """
    change = [Fraction()] * 28
    ratios = dict(ratios)
    for node in graph.nodes:
        seen = [as_read.get(name, ratios.get(name, Fraction(1))) for name in node.inputs]
        if {*seen, ratios.get(node.name, 1)} == {1}:
            continue
        if isinstance(node.layer, (Conv2d, Dense)):
            out = ratios.setdefault(node.name, Fraction(1))
            weighed = _times(_charged(graph, node), seen[0] * out)
            if isinstance(node.layer, Dense) and node.layer.bias:
                bias = _vector(node.layer.costs(*graph.reads(node))["bias"])
                weighed = _plus(weighed, _times(bias, out - seen[0] * out))
        else:
            widths = [graph.shapes[name][0] for name in node.inputs]
            sums = sum((ratio * width for ratio, width in zip(seen, widths)), Fraction()) / sum(widths)
            ratios[node.name] = sums if isinstance(node.layer, Concat) else seen[0]
            weighed = _times(_charged(graph, node), ratios[node.name])
        change = _plus(change, weighed, _times(_charged(graph, node), Fraction(-1)))
    for name in graph.trained - {graph.output}:
        forks = (len(graph.readers[name]) - 1) * prod(graph.shapes[name])
        longer = as_read.get(name, ratios.get(name, Fraction(1))) - 1
        if forks and longer:
            change = _plus(change, _times(_fork(forks), longer))
    return change


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
