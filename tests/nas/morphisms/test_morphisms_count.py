"""The change of the operation count by a morphism, predicted from the parent and the morphism alone."""

from __future__ import annotations

from dataclasses import astuple, replace
from fractions import Fraction
from math import prod

import pytest

from nas.graph import Graph, Node
from nas.layers import (
    Add,
    BatchNorm,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Gate,
    GlobalPool,
    Layer,
    ReLU,
    Shape,
)
from nas.morphisms import (
    BranchSplit,
    ConcatSkip,
    DeepenBasic,
    DeepenBottleneck,
    EnlargeKernel,
    Morphism,
    Skip,
    SqueezeExcite,
    Ungroup,
    Widen,
    WidenByCopies,
    WidenTrunk,
    WidenTrunkByCopies,
)
from nas.ops import Cost
from tests.nas.grown import KINDS, PARENTS, proposals

WIDENINGS = (Widen, WidenByCopies, WidenTrunk, WidenTrunkByCopies)


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
        assert isinstance(layer, (Conv2d, DepthwiseConv2d))
        if isinstance(morphism, EnlargeKernel):
            factor = Fraction(morphism.kernel, layer.kernels[0]) ** 2
        else:
            factor = Fraction(layer.groups, morphism.groups)
        bias = _bias(parent, node)
        return _times(_less(_charged(parent, node), bias), factor - 1)
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


def _bias(graph: Graph, node: Node) -> Vector:
    """Of which there is as much as goes out, whatever comes in."""
    return _vector(node.layer.costs(*graph.reads(node)).get("bias", Cost()))


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
            weighed = _plus(weighed, _times(_bias(graph, node), out - seen[0] * out))
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
