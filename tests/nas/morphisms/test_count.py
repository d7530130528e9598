"""The change of the operation count by a morphism, predicted from the parent and the morphism alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

import pytest

from nas.graph import Graph, Node
from nas.head import NextSymbol
from nas.layers import (
    Add,
    Attention,
    BatchNorm,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Embedding,
    Experts,
    Gate,
    GlobalPool,
    Layer,
    Linear,
    Product,
    ReLU,
    RMSNorm,
    Shape,
    SiLU,
    SquaredReLU,
)
from nas.morphisms import (
    MIX,
    TEXT_MIX,
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
from nas.morphisms.text import (
    DeepenGated,
    DeepenPlain,
    GateMLP,
    MoreGroups,
    MoreHeads,
    Upcycle,
    WidenMLP,
    WidenStream,
)
from nas.morphisms.text.blocks import LAYERS
from nas.ops import Cost, Ops
from tests.nas.grown import FORMS, POSITIONS, SYMBOLS, cases, proposals, standard

WIDENINGS = (Widen, WidenByCopies, WidenTrunk, WidenTrunkByCopies)


@pytest.mark.parametrize("kind", MIX)
def test_the_count_of_images_changes_as_predicted(kind: type[Morphism]) -> None:
    for _, parent, morphism in cases(kind, 3):
        assert morphism.apply(parent).cost == parent.cost + _predicted(parent, morphism), morphism


def _times(cost: Cost, factor: Fraction | int) -> Cost:
    """The factor may be a fraction; what is counted then becomes whole again in the sum."""
    passes = (cost.forward, cost.input_grad, cost.weight_grad, cost.evaluate)
    return Cost(*[ops * factor for ops in passes])  # type: ignore[operator]


def _of(layer: Layer, *reads: Shape, trained: bool = True) -> Cost:
    """One layer's operations by its closed forms; `trained`: something above it has weights."""
    cost = sum(layer.costs(*reads).values(), Cost())
    return cost if trained else replace(cost, input_grad=Ops())


def _fork(size: Fraction | int) -> Cost:
    """One more reader of a tensor whose gradient is needed: an addition an element."""
    return Cost(input_grad=Ops(add=size))  # type: ignore[arg-type]


def _predicted(parent: Graph, morphism: Morphism) -> Cost:
    if isinstance(morphism, WIDENINGS):
        ratio = Fraction(morphism.channels, parent.shapes[morphism.node][0])
        return _scaled(parent, dict.fromkeys(_tied(parent, morphism.node), ratio), {})
    if isinstance(morphism, ConcatSkip):
        own, more = parent.shapes[morphism.node], parent.shapes[morphism.source]
        read = _scaled(parent, {}, {morphism.node: Fraction(own[0] + more[0], own[0])})
        return read + _fork(prod(more) * (morphism.source in parent.trained))
    if isinstance(morphism, (EnlargeKernel, Ungroup)):
        node = parent.node[morphism.node]
        layer = node.layer
        assert isinstance(layer, (Conv2d, DepthwiseConv2d))
        if isinstance(morphism, EnlargeKernel):
            factor = Fraction(morphism.kernel, layer.kernels[0]) ** 2
        else:
            factor = Fraction(layer.groups, morphism.groups)
        return _times(_charged(parent, node) + _times(_bias(parent, node), -1), factor - 1)
    shape = parent.shapes[morphism.node]  # type: ignore[attr-defined]
    if isinstance(morphism, (DeepenBasic, DeepenBottleneck)):
        inner, middle = (morphism.channels, *shape[1:]), morphism.kernel
        layers: list[tuple[Layer, Shape]]
        if isinstance(morphism, DeepenBasic):
            layers = [(Conv2d(inner[0], middle), shape), (Conv2d(shape[0], middle), inner)]
        else:
            layers = [(Conv2d(inner[0], 1), shape), (Conv2d(inner[0], middle, 1, morphism.groups), inner)]
            layers += [(Conv2d(shape[0], 1), inner)]
        layers += [(layer, inner) for layer in (BatchNorm(), ReLU())] * (len(layers) - 1)
        layers += [(BatchNorm(), shape), (ReLU(), shape)]
        parts = [_of(layer, read) for layer, read in layers]
        return sum([*parts, _of(Add(), shape, shape)], _fork(prod(shape)))
    if isinstance(morphism, SqueezeExcite):
        channels, features = shape[:1], (morphism.features,)
        squeeze = _of(GlobalPool(), shape) + _of(Dense(features[0]), channels) + _of(ReLU(), features)
        return squeeze + _of(Dense(shape[0]), features) + _of(Gate(), shape, channels) + _fork(prod(shape))
    joined = _of(BatchNorm(), shape) + _of(Add(), shape, shape)
    if isinstance(morphism, Skip):
        source = morphism.source
        start = parent.shapes[source]
        convolution = Conv2d(shape[0], 1, -(-start[1] // shape[1]))
        new = _of(convolution, start, trained=source in parent.trained)
    else:
        assert isinstance(morphism, BranchSplit)
        conv = parent.node[parent.node[morphism.node].inputs[0]]
        (source,) = conv.inputs
        new = _charged(parent, conv)
    return new + joined + _fork(prod(parent.shapes[source]) * (source in parent.trained))


def _charged(graph: Graph, node: Node) -> Cost:
    trained = any(name in graph.trained for name in node.inputs)
    return _of(node.layer, *graph.reads(node), trained=trained)


def _bias(graph: Graph, node: Node) -> Cost:
    """Cost of a node's bias, which depends on what goes out and not on what comes in."""
    return node.layer.costs(*graph.reads(node)).get("bias", Cost())


def _tied(graph: Graph, start: str) -> set[str]:
    """What elementwise layers connect to a tensor, upwards and downwards, until nothing is added."""
    found, before = {start}, 0
    while len(found) > before:
        before = len(found)
        for node in graph.nodes:
            if not isinstance(node.layer, (Conv2d, Dense, Concat)) and found & {node.name, *node.inputs}:
                found |= {node.name, *node.inputs}
    return found


def _scaled(graph: Graph, ratios: dict[str, Fraction], as_read: dict[str, Fraction]) -> Cost:
    """The change when tensors get `ratios` times their channels; `as_read` are longer for readers only.

    Convolutions and dense layers cost in proportion to the channels on either side, all else to its own.
    """
    change = Cost()
    for node in graph.nodes:
        seen = [as_read.get(name, ratios.get(name, Fraction(1))) for name in node.inputs]
        if {*seen, ratios.get(node.name, 1)} == {1}:
            continue
        if isinstance(node.layer, (Conv2d, Dense)):
            out = ratios.setdefault(node.name, Fraction(1))
            ratio = seen[0] * out
            change += _times(_bias(graph, node), out - ratio)
        else:
            widths = [graph.shapes[name][0] for name in node.inputs]
            sums = sum((each * width for each, width in zip(seen, widths)), Fraction()) / sum(widths)
            ratio = ratios[node.name] = sums if isinstance(node.layer, Concat) else seen[0]
        change += _times(_charged(graph, node), ratio - 1)
    for name in graph.trained - {graph.output}:
        forks = (len(graph.readers[name]) - 1) * prod(graph.shapes[name])
        change += _fork(forks * (as_read.get(name, ratios.get(name, Fraction(1))) - 1))
    return change


@dataclass(frozen=True)
class Block:
    """A block of a transformer by its sizes alone."""

    heads: int
    groups: int
    each: int
    hidden: int
    bias: bool
    activation: Layer
    gate: str
    """"", "plain" or "biased"."""
    experts: int = 0
    """Number of experts, of which two are chosen; 0: an MLP."""

    def cost(self, width: int) -> Cost:
        """From closed forms of the layers and the forks of a pre-norm block; no graph is asked."""
        stream, inside = (POSITIONS, width), (POSITIONS, self.hidden)
        queries, keys = ((POSITIONS, number * self.each) for number in (self.heads, self.groups))
        rows = [_of(RMSNorm(), stream)] * 2 + [_of(Add(), stream, stream)] * 2
        rows += [_of(Linear(shape[1], self.bias), stream) for shape in (queries, keys, keys)]
        rows += [_of(Attention(self.heads, self.groups), queries, keys, keys)]
        rows += [_of(Linear(width, self.bias), queries)]
        forks = 2 + 2  # the stream is read by a norm and by a sum, twice; three Linears read the first norm
        if self.experts:
            rows += [_of(Experts(self.experts, 2, self.hidden, bool(self.gate)), stream)]
            return sum(rows, _fork(forks * POSITIONS * width))
        rows += [_of(Linear(width, self.bias), inside)]
        rows += [_of(Linear(self.hidden, self.bias), stream), _of(self.activation, inside)]
        if self.gate:
            rows += [_of(Linear(self.hidden, self.gate == "biased"), stream), _of(Product(), inside, inside)]
        return sum(rows, _fork((forks + bool(self.gate)) * POSITIONS * width))


def _network(width: int, *blocks: Block) -> Cost:
    stream, loss = (POSITIONS, width), NextSymbol().loss((POSITIONS, SYMBOLS))
    ends = [
        _of(RMSNorm(), stream),
        _of(Linear(SYMBOLS), stream),
        _of(Embedding(SYMBOLS, width), (POSITIONS,)),
    ]
    return sum([*ends, *(block.cost(width) for block in blocks)], loss)


def _grown(width: int, block: Block, morphism: Morphism) -> Cost:
    match morphism:
        case DeepenPlain() | DeepenGated():
            gate = "plain" if isinstance(morphism, DeepenGated) else ""
            layer = LAYERS[morphism.activation]
            new = Block(morphism.heads, morphism.groups, morphism.width, morphism.hidden, False, layer, gate)
            return _network(width, block, new)
        case WidenStream():
            width = morphism.features
        case WidenMLP():
            block = replace(block, hidden=morphism.features)
        case MoreHeads():
            block = replace(block, heads=morphism.heads, groups=morphism.groups)
        case MoreGroups():
            block = replace(block, groups=morphism.groups)
        case GateMLP():
            block = replace(block, gate="biased")
        case Upcycle():
            block = replace(block, experts=morphism.experts)
    return _network(width, block)


@pytest.mark.parametrize("kind", TEXT_MIX)
@pytest.mark.parametrize("form", FORMS)
def test_the_count_of_text_changes_as_predicted(form: str, kind: type[Morphism]) -> None:
    parent, (width, heads, groups, each, features, bias) = standard(form), FORMS[form]
    activation, gate = (SquaredReLU(), "") if form == "plain" else (SiLU(), "plain")
    block = Block(heads, groups, each, features, bias, activation, gate)
    assert parent.cost == _network(width, block)
    for morphism in proposals(parent, kind, 5):
        child = morphism.apply(parent)
        assert child.cost == _grown(width, block, morphism), morphism
        assert child.operations > parent.operations or isinstance(morphism, MoreGroups)
