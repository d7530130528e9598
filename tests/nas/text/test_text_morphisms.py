"""Morphisms of text as edits of a graph: where they apply, how they are recorded, what they cost."""

from __future__ import annotations

import json
import random
import statistics
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest

from nas.graph import INPUT, Graph, Node
from nas.head import NextSymbol
from nas.layers import (
    GELU,
    Add,
    Attention,
    Embedding,
    Experts,
    Layer,
    Linear,
    Product,
    RMSNorm,
    Shape,
    ShapeError,
    SiLU,
    SquaredReLU,
)
from nas.morphisms import MIX, TEXT_MIX, Morphism, MorphismError
from nas.morphisms.channels import NEW
from nas.morphisms.text import (
    DeepenGated,
    DeepenPlain,
    GateMLP,
    MoreGroups,
    MoreHeads,
    Nonlinearity,
    Upcycle,
    WidenMLP,
    WidenStream,
)
from nas.morphisms.text.blocks import LAYERS
from nas.morphisms.text.growth import Taken
from nas.ops import Cost, Ops
from nas.record import decode, encode, graph_from_json, graph_to_json
from nas.seeds import residual
from nas.text_seeds import TEXT_SEEDS
from nas.weights import digest
from tests.nas.grown import applies, proposals
from tests.nas.text.grown_text import (
    FORMS,
    POSITIONS,
    SYMBOLS,
    TEXT_KINDS,
    TEXT_PARENTS,
    grown_text,
    knotted,
    mixed,
    randomised_text,
    standard,
)


def with_layers(nodes: tuple[Node, ...], **layers: Layer) -> tuple[Node, ...]:
    return tuple(replace(node, layer=layers.get(node.name, node.layer)) for node in nodes)


every_kind = pytest.mark.parametrize("kind", TEXT_KINDS)
every_parent = pytest.mark.parametrize("name", TEXT_PARENTS)


@every_kind
def test_every_kind_finds_places(kind: type[Morphism]) -> None:
    found = {name: len(proposals(TEXT_PARENTS[name](), kind, 20)) for name in TEXT_PARENTS}
    assert sum(num >= 1 for num in found.values()) >= 2, found


@every_kind
@every_parent
def test_what_is_proposed_applies_and_is_recorded(name: str, kind: type[Morphism]) -> None:
    parent = TEXT_PARENTS[name]()
    before = repr(parent)
    for morphism in proposals(parent, kind, 10):
        assert type(morphism) is kind
        child = morphism.apply(parent)
        assert child.key != parent.key
        assert (child.input, child.classes, child.head) == (parent.input, parent.classes, NextSymbol())
        kept = [node.name for node in child.nodes if node.name in parent.node]
        assert kept == [name for name in parent.node if name in child.node]
        assert (len(kept) < len(parent.nodes)) == (kind is Upcycle)
        assert max(map(len, child.node.keys() - parent.node.keys()), default=0) < 24
        assert morphism.apply(parent) == child
        assert decode(Morphism, json.loads(json.dumps(encode(morphism)))) == morphism
        assert graph_from_json(json.dumps(graph_to_json(child))) == child
    assert repr(parent) == before


@every_kind
@every_parent
def test_the_parents_weights_are_untouched(name: str, kind: type[Morphism]) -> None:
    parent = TEXT_PARENTS[name]()
    weights = randomised_text(parent, 1)
    before = digest(weights)
    for morphism in proposals(parent, kind, 3):
        child, carried = morphism.apply(parent), morphism.carry(parent, weights)
        shapes = {name: values.shape for name, values in carried.items()}
        assert shapes == {**child.weights, **child.statistics}
        momentum = morphism.carry_state(parent, weights)
        assert {name: values.shape for name, values in momentum.items()} == child.weights
        assert digest(morphism.carry(parent, weights)) == digest(carried)
    assert digest(weights) == before


@every_kind
@every_parent
def test_the_same_random_seed_proposes_the_same(name: str, kind: type[Morphism]) -> None:
    graph = TEXT_PARENTS[name]()
    fresh = Graph(graph.input, graph.nodes, head=graph.head)
    assert proposals(graph, kind, 5) == proposals(fresh, kind, 5)


def test_a_step_of_a_search_takes_milliseconds() -> None:
    """Proposing and applying, for a child of 250 nodes; measured beside other work, so by processor time."""
    parent, rng, seconds = TEXT_SEEDS["llama-4x128"](), random.Random(3), []
    while len(parent.nodes) < 250:
        parent = DeepenPlain.propose(parent, rng).apply(parent)
    for kind in TEXT_KINDS * 5:
        fresh = Graph(parent.input, parent.nodes, head=parent.head)
        began = time.process_time()
        kind.propose(fresh, rng).apply(fresh)
        seconds.append(time.process_time() - began)
    assert statistics.median(seconds) < 0.005


def test_a_lineage_can_be_replayed() -> None:
    assert grown_text("plain", 5, 8) == grown_text("plain", 5, 8)
    assert grown_text("plain", 5, 8) != grown_text("plain", 6, 8)


@every_kind
@pytest.mark.parametrize(
    ("other", "word"),
    [(residual((1, 8, 8), 5, (4, 8)), "symbol"), (TEXT_SEEDS["gpt-4x128"]((8,)), "RMSNorm")],
    ids=["images", "layer norms"],
)
def test_other_networks_are_refused_in_one_line(other: Graph, word: str, kind: type[Morphism]) -> None:
    morphism = next(morphism for parent in TEXT_PARENTS.values() for morphism in proposals(parent(), kind, 1))
    with pytest.raises(MorphismError, match=f"^.*{word}.*$"):
        kind.propose(other, random.Random(0))
    with pytest.raises(MorphismError, match=f"^.*{word}.*$"):
        morphism.apply(other)


@pytest.mark.parametrize("kind", MIX)
def test_morphisms_of_images_find_no_place_in_text(kind: type[Morphism]) -> None:
    with pytest.raises(MorphismError):
        kind.propose(standard("gated"), random.Random(0))


@pytest.mark.parametrize(
    ("morphism", "message"),
    [
        (MoreHeads("block1.attention", 5, 2, 0), "5 in 2 add neither whole groups"),
        (MoreHeads("block1.attention", 8, 3, 0), "8 in 3 add neither"),
        (MoreHeads("block1.attention", 4, 2, 0), "4 in 2 add neither"),
        (MoreHeads("block1.attention", 9, 3, 0), "9 in 3 add neither"),
        (MoreHeads("block1.mlp.in", 8, 2, 0), "is not an attention"),
        (MoreHeads("nothing", 8, 2, 0), "no node 'nothing'"),
        (MoreGroups("block1.attention", 3), "4 heads in 2 groups, which cannot become 3"),
        (MoreGroups("block1.attention", 8), "cannot become 8"),
        (WidenMLP("block1.mlp.in", 16, 0), "16 features, not fewer than 16"),
        (WidenMLP("block1.attention.query", 32, 0), "does not write hidden features"),
        (WidenMLP("symbols", 32, 0), "does not write hidden features"),
        (WidenStream("embedding", 12, 0), "12 features, not fewer than 12"),
        (WidenStream("block1.mlp.in", 32, 0), "does not write a residual stream"),
        (GateMLP("block1.mlp.in"), "no activation of a Linear"),
        (Upcycle("block1.mlp.out", 4, 2, 0), "block1.mlp.out is no Linear without a bias"),
        (Upcycle("symbols", 4, 2, 0), "symbols reads neither a GELU nor a product"),
        (
            DeepenPlain("norm", 2, 1, 4, 0.0, 8, Nonlinearity.GELU, 0),
            "norm is not the sum or the embedding of a residual stream",
        ),
    ],
)
def test_what_cannot_be_is_refused(morphism: Morphism, message: str) -> None:
    with pytest.raises(MorphismError, match=message):
        morphism.apply(standard("plain"))


def test_a_gated_mlp_gets_no_second_gate() -> None:
    child = GateMLP("block1.mlp.act").apply(standard("plain"))
    assert not applies(GateMLP("block1.mlp.act"), child)
    with pytest.raises(MorphismError, match="no plain MLP"):
        GateMLP.propose(child, random.Random(0))


def test_sizes_that_cannot_be_are_refused_by_the_layers() -> None:
    for block in (
        DeepenGated("embedding", 3, 2, 4, 0.0, 8, Nonlinearity.GELU, 0),
        DeepenGated("embedding", 2, 1, 3, 100.0, 8, Nonlinearity.GELU, 0),
        DeepenGated("embedding", 2, 1, 4, 0.5, 8, Nonlinearity.GELU, 0),
        DeepenGated("embedding", 2, 1, 4, 0.0, -8, Nonlinearity.GELU, 0),
    ):
        with pytest.raises(ShapeError):
            block.apply(standard("gated"))


def built(*nodes: Node) -> Graph:
    """An MLP of a stream of 8 features, whose last node is "out"."""
    ends = (Node("sum", Add(), ("norm", "out")), Node("symbols", Linear(SYMBOLS), ("sum",)))
    begins = (Node("embedding", Embedding(SYMBOLS, 8), (INPUT,)), Node("norm", RMSNorm(), ("embedding",)))
    return Graph((POSITIONS,), (*begins, *nodes, *ends), head=NextSymbol())


GELU_MLP = (
    Node("in", Linear(12), ("norm",)),
    Node("act", GELU(), ("in",)),
    Node("out", Linear(8), ("act",)),
)
GATED_MLP = (
    Node("in", Linear(12), ("norm",)),
    Node("gate", Linear(12), ("norm",)),
    Node("act", SiLU(), ("gate",)),
    Node("product", Product(), ("act", "in")),
    Node("out", Linear(8), ("product",)),
)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (with_layers(GELU_MLP, act=SquaredReLU()), "neither a GELU nor a product"),
        (with_layers(GELU_MLP, out=Linear(8, bias=True)), "out is no Linear without a bias"),
        (with_layers(GELU_MLP, **{"in": Linear(12, bias=True)}), "in is no Linear without a bias"),
        (with_layers(GATED_MLP, act=GELU()), "product is no product with a SiLU"),
        (with_layers(GATED_MLP, gate=Linear(12, bias=True)), "gate is no Linear without a bias"),
        ((*GATED_MLP[:1], replace(GATED_MLP[1], inputs=("embedding",)), *GATED_MLP[2:]), "different tensors"),
        (
            (*GATED_MLP[1:3], replace(GATED_MLP[3], inputs=("act", "act")), GATED_MLP[4]),
            "act is not read",
        ),
    ],
)
def test_experts_are_made_of_mlps_of_their_form_alone(nodes: tuple[Node, ...], message: str) -> None:
    assert isinstance(Upcycle("out", 4, 2, 0).apply(built(*GELU_MLP)).node["out"].layer, Experts)
    assert isinstance(Upcycle("out", 4, 2, 0).apply(built(*GATED_MLP)).node["out"].layer, Experts)
    with pytest.raises(MorphismError, match=message):
        Upcycle("out", 4, 2, 0).apply(built(*nodes))


@pytest.mark.parametrize("morphism", [WidenMLP("block1.mlp.out", 24, 0), GateMLP("block1.mlp.out")])
def test_experts_are_no_mlp(morphism: Morphism) -> None:
    with pytest.raises(MorphismError):
        morphism.apply(mixed())
    with pytest.raises(MorphismError, match="is no Linear"):
        Upcycle("block1.mlp.out", 4, 2, 0).apply(mixed())


@pytest.mark.parametrize(("experts", "chosen"), [(4, 1), (2, 3)])
def test_so_few_experts_are_refused_by_the_layer(experts: int, chosen: int) -> None:
    with pytest.raises(ShapeError, match=f"{chosen} chosen of {experts}"):
        Upcycle("block1.mlp.out", experts, chosen, 0).apply(standard("gated"))


def test_experts_count_as_those_that_are_chosen_and_the_router() -> None:
    """By hand: at each of 6 positions of 8 features, MLPs of 3 matrices of 12 · 8 and a router of 5."""
    parent = standard("gated")
    child = Upcycle("block1.mlp.out", 5, 3, 0).apply(parent)
    assert child.cost.forward.mac - parent.cost.forward.mac == 6 * (5 * 8 + (3 - 1) * 3 * 12 * 8)
    assert child.cost.backward.mac - parent.cost.backward.mac == 2 * 6 * (5 * 8 + (3 - 1) * 3 * 12 * 8)
    assert child.num_parameters - parent.num_parameters == 5 * 8 + (5 - 1) * 3 * 12 * 8
    assert child.statistics == {"block1.mlp.out.balance": (5,)}
    # Scores; two gates and two branches more, each SiLU and product; three outputs beside their sum.
    assert child.num_activations - parent.num_activations == 6 * (5 + 2 * 4 * 12 + 3 * 8)


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
    "inside",
    [(SquaredReLU(), ("norm",)), (Attention(2, 2), ("norm", "norm", "norm"))],
    ids=["act", "attention"],
)
def test_a_stream_is_read_by_linears_alone(inside: tuple[Layer, tuple[str, ...]]) -> None:
    """Zeros get no gradient through a squared ReLU, and attention cuts wider features into other heads."""
    layer, reads = inside
    nodes = (
        Node("embedding", Embedding(SYMBOLS, 8), (INPUT,)),
        Node("norm", RMSNorm(), ("embedding",)),
        Node("inside", layer, reads),
        Node("symbols", Linear(SYMBOLS), ("inside",)),
    )
    graph = Graph((POSITIONS,), nodes, head=NextSymbol())
    with pytest.raises(MorphismError, match="residual stream"):
        WidenStream("embedding", 16, 0).apply(graph)
    with pytest.raises(MorphismError, match="residual stream"):
        WidenStream.propose(graph, random.Random(0))


def test_heads_whose_keys_are_shared_stay_as_they_are() -> None:
    """One Linear for keys and values, and one for queries that another layer reads, too."""
    for reads in (("q", "kv", "kv"), ("q", "k", "v")):
        names = dict.fromkeys(reads)
        nodes = [Node("embedding", Embedding(SYMBOLS, 8), (INPUT,))]
        nodes += [Node(name, Linear(8), ("embedding",)) for name in names]
        nodes += [Node("attention", Attention(2, 2), reads), Node("out", Linear(8), ("attention",))]
        nodes += [Node("sum", Add(), ("out", "q" if "k" in names else "embedding"))]
        nodes += [Node("symbols", Linear(SYMBOLS), ("sum",))]
        graph = Graph((POSITIONS,), tuple(nodes), head=NextSymbol())
        with pytest.raises(MorphismError, match="three Linears of its own"):
            MoreHeads("attention", 4, 2, 0).apply(graph)


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


def test_the_mix_has_nothing_of_images() -> None:
    assert sum(TEXT_MIX.values()) == pytest.approx(1)
    assert not MIX.keys() & TEXT_MIX.keys()


@dataclass(frozen=True)
class Block:
    """By its sizes alone."""

    heads: int
    groups: int
    each: int
    hidden: int
    bias: bool
    activation: Layer
    gate: str
    """"", "plain" or "biased"."""
    experts: int = 0
    """Of which two are chosen; 0: an MLP."""


@dataclass(frozen=True)
class Sizes:
    width: int
    blocks: tuple[Block, ...]

    def cost(self) -> Cost:
        """From closed forms of the layers and the forks of a pre-norm block; no graph is asked."""
        stream = (POSITIONS, self.width)
        rows = [of(Linear(SYMBOLS), stream), of(RMSNorm(), stream), NextSymbol().loss((POSITIONS, SYMBOLS))]
        rows += [of(Embedding(SYMBOLS, self.width), (POSITIONS,))]
        rows += [self._block(block) for block in self.blocks]
        return sum(rows, Cost())

    def _block(self, block: Block) -> Cost:
        stream, inside = (POSITIONS, self.width), (POSITIONS, block.hidden)
        queries, keys = ((POSITIONS, number * block.each) for number in (block.heads, block.groups))
        rows = [of(RMSNorm(), stream)] * 2 + [of(Add(), stream, stream)] * 2
        rows += [of(Linear(shape[1], block.bias), stream) for shape in (queries, keys, keys)]
        rows += [of(Attention(block.heads, block.groups), queries, keys, keys)]
        rows += [of(Linear(self.width, block.bias), queries)]
        forks = 2 + 2  # the stream is read by a norm and by a sum, twice; three Linears read the first norm
        if block.experts:
            rows += [of(Experts(block.experts, 2, block.hidden, bool(block.gate)), stream)]
            return sum(rows, Cost(input_grad=Ops(add=forks * POSITIONS * self.width)))
        rows += [of(Linear(self.width, block.bias), inside)]
        rows += [of(Linear(block.hidden, block.bias), stream), of(block.activation, inside)]
        if block.gate:
            rows += [of(Linear(block.hidden, block.gate == "biased"), stream), of(Product(), inside, inside)]
            forks += 1
        return sum(rows, Cost(input_grad=Ops(add=forks * POSITIONS * self.width)))


def of(layer: Layer, *reads: Shape) -> Cost:
    return sum(layer.costs(*reads).values(), Cost())


def sizes(form: str) -> Sizes:
    width, heads, groups, each, features, bias = FORMS[form]
    activation, gate = (SquaredReLU(), "") if form == "plain" else (SiLU(), "plain")
    return Sizes(width, (Block(heads, groups, each, features, bias, activation, gate),))


def grown_sizes(was: Sizes, morphism: Morphism) -> Sizes:
    block = was.blocks[0]
    match morphism:
        case DeepenPlain() | DeepenGated():
            gate = "plain" if isinstance(morphism, DeepenGated) else ""
            layer = LAYERS[morphism.activation]
            new = Block(morphism.heads, morphism.groups, morphism.width, morphism.hidden, False, layer, gate)
            return replace(was, blocks=(block, new))
        case WidenStream():
            return replace(was, width=morphism.features)
        case WidenMLP():
            block = replace(block, hidden=morphism.features)
        case MoreHeads() | MoreGroups():
            heads = morphism.heads if isinstance(morphism, MoreHeads) else block.heads
            block = replace(block, heads=heads, groups=morphism.groups)
        case GateMLP():
            block = replace(block, gate="biased")
        case Upcycle():
            block = replace(block, experts=morphism.experts)
    return replace(was, blocks=(block,))


@every_kind
@pytest.mark.parametrize("form", FORMS)
def test_the_count_changes_as_predicted(form: str, kind: type[Morphism]) -> None:
    parent, was = standard(form), sizes(form)
    assert parent.cost == was.cost()
    for morphism in proposals(parent, kind, 5):
        child = morphism.apply(parent)
        assert child.cost == grown_sizes(was, morphism).cost(), morphism
        assert child.operations > parent.operations or isinstance(morphism, MoreGroups)
