"""Graphs: their counts against reference figures, and what cannot be built."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import pairwise
from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas.graph import INPUT, Graph, Node, once
from nas.head import Classes, Head, NextSymbol
from nas.layers import (
    Add,
    BatchNorm,
    Concat,
    Conv2d,
    Dense,
    Embedding,
    GlobalPool,
    Linear,
    MaxPool,
    ReLU,
    Shape,
    ShapeError,
)
from nas.ops import OPS, TENSOR_OPS, Cost, Ops
from nas.seeds import residual, resnet18, resnet50, resnet50_v1
from nas.text_seeds import gpt_4x128, llama_4x128
from tests.nas.graphs import chain, graphs, grouped
from tests.nas.grown import descendants
from tests.nas.text.samples import texts

REFERENCE = json.loads((Path(__file__).parent / "counts.json").read_text())["nets"]
NETWORKS = {"resnet50_v1.5": resnet50(), "resnet50_v1": resnet50_v1()}
FREE = Ops(mac=2, add=1, mul=1, div=1, sqrt=1, exp=1, cmp=1)  # the price list of `by_type`


@pytest.mark.parametrize("name", REFERENCE)
def test_operations_and_parameters_of_resnet50(name: str) -> None:
    graph, right = NETWORKS[name], REFERENCE[name]
    cost = graph.cost
    by_type = {
        row: {
            "n": found.num,
            "fw": found.cost.forward.price(FREE),
            "dx": found.cost.input_grad.price(FREE),
            "dw": found.cost.weight_grad.price(FREE),
        }
        for row, found in graph.rows.items()
    }
    assert by_type == right["by_type"]
    passes = {"forward": cost.forward, "backward": cost.backward, "evaluate": cost.evaluate}
    assert {key: {**asdict(ops), "OPS": ops.price(OPS)} for key, ops in passes.items()} == right["by_kind"]
    assert cost.train.price(OPS) == graph.operations == right["OPS_per_training_image"]
    assert graph.num_parameters == right["params"]
    assert {
        "macs_forward": cost.forward.mac,
        "ops_forward": cost.forward.price(TENSOR_OPS),
        "ops_backward_dx": cost.input_grad.price(TENSOR_OPS),
        "ops_backward_dw": cost.weight_grad.price(TENSOR_OPS),
        "ops_backward": cost.backward.price(TENSOR_OPS),
        "ops_train_step_per_image": cost.train.price(TENSOR_OPS),
    } == right["tensor"]


def test_nothing_is_charged_for_a_gradient_that_nobody_needs() -> None:
    graph = chain(MaxPool(2, 2), ReLU(), Conv2d(4, 1), ReLU(), GlobalPool(), Dense(3), input=(2, 4, 4))
    nothing = Ops()
    assert graph.rows["maxpool"].cost.input_grad == nothing
    assert graph.rows["conv"].cost.input_grad == nothing
    assert graph.rows["conv"].cost.weight_grad == Ops(mac=2 * 4 * 4)
    assert graph.rows["relu"].cost.forward == Ops(cmp=8 + 16)
    assert graph.rows["relu"].cost.input_grad == Ops(cmp=16)
    assert graph.trained == {"Conv2d.2", "ReLU.3", "GlobalPool.4", "Dense.5"}


def test_a_fork_gathers_its_gradients_where_one_is_needed() -> None:
    nodes = (
        Node("conv", Conv2d(2, 1), (INPUT,)),  # the image itself is read twice, at no charge
        Node("other", Conv2d(2, 1), (INPUT,)),
        Node("sum", Add(), ("conv", "conv", "other")),  # `conv` is read three times
        Node("cat", Concat(), ("sum", "conv")),
        Node("pool", GlobalPool(), ("cat",)),
        Node("dense", Dense(3), ("pool",)),
    )
    graph = Graph((1, 3, 3), nodes)
    assert graph.rows["grad_accum"].num == 1
    assert graph.rows["grad_accum"].cost == Cost(input_grad=Ops(add=2 * 18))
    assert [node.name for node in graph.readers["conv"]] == ["sum", "sum", "cat"]
    assert graph.readers["dense"] == ()


def test_activations_are_the_outputs_of_all_nodes() -> None:
    graph = chain(Conv2d(8, 3, 2), BatchNorm(), GlobalPool(), Dense(3), input=(2, 4, 4))
    assert graph.num_activations == 32 + 32 + 8 + 3
    assert graph.num_parameters == 8 * 2 * 9 + 16 + 27
    assert list(graph.weights) == [
        "Conv2d.0.weight",
        "BatchNorm.1.weight",
        "BatchNorm.1.bias",
        "Dense.3.weight",
        "Dense.3.bias",
    ]
    assert graph.statistics == {"BatchNorm.1.running_mean": (8,), "BatchNorm.1.running_var": (8,)}


def test_grouped_convolutions_cost_a_group_each() -> None:
    dense = {
        node.name: replace(node.layer, groups=1) if isinstance(node.layer, Conv2d) else node.layer
        for node in grouped().nodes
    }
    whole = replace(grouped(), nodes=tuple(replace(node, layer=dense[node.name]) for node in grouped().nodes))
    saved = 16 * 15 * 9 * 24 * 24 + 32 * 28 * 9 * 24 * 24 + 64 * 56 * 9 * 12 * 12
    assert whole.cost.forward.mac - grouped().cost.forward.mac == saved


SIZES = "it must be (channels, height, width) or (positions,), each a whole number from 1 to 2^31 − 1"
GOOD = (
    Node("conv", Conv2d(4), (INPUT,)),
    Node("pool", GlobalPool(), ("conv",)),
    Node("dense", Dense(3), ("pool",)),
)
BRANCH = Node("branch", ReLU(), ("conv",))


@pytest.mark.parametrize("input", [(), (1, 0, 4), (1, 4.0, 4), (1, 1 << 31, 4), (True, 4, 4)])
def test_an_input_that_is_no_size_is_refused(input: Shape) -> None:
    with pytest.raises(ShapeError) as raised:
        Graph(input, GOOD)
    assert str(raised.value) == f"the input is {input}; {SIZES}"


LATE = "which does not come before it"


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((), "a graph needs at least one node"),
        ((*GOOD[:2], GOOD[1], GOOD[2]), "two nodes are named 'pool'"),
        ((Node("input", ReLU(), ("input",)),), "two nodes are named 'input'"),
        ((GOOD[0], GOOD[2], GOOD[1]), f"dense reads 'pool', {LATE}"),
        ((GOOD[0], replace(GOOD[1], inputs=("con",))), f"pool reads 'con', {LATE}"),
        ((Node("self", Add(), ("self", INPUT)),), f"self reads 'self', {LATE}"),
        ((GOOD[0], GOOD[2]), f"dense reads 'pool', {LATE}"),
        ((Node("none", ReLU(), ()),), "none: ReLU: reads one input, not 0"),
        ((GOOD[0], replace(GOOD[2], inputs=("conv",))), "dense: Dense: reads (features,), not (4, 4, 4)"),
        ((GOOD[0], BRANCH, *GOOD[1:]), "no node reads branch"),
        ((GOOD[0], BRANCH, replace(BRANCH, name="another"), *GOOD[1:]), "no node reads another, branch"),
        (GOOD[:1], "the output has the shape (4, 4, 4), not (classes,)"),
    ],
)
def test_refused_in_one_line(nodes: tuple[Node, ...], message: str) -> None:
    with pytest.raises(ShapeError) as raised:
        Graph((1, 4, 4), nodes)
    assert str(raised.value) == message


EMBEDDED = Node("embedding", Embedding(7, 12), (INPUT,))
OF_TEXT = (EMBEDDED, Node("symbols", Linear(7), ("embedding",)))
RELU = Node("relu", ReLU(), (INPUT,))
TIED = Node("tied", Linear(7, tied=True), ("embedding",))
NO_TABLE, TABLES = "tied: it is tied to the embedding of ", " symbols and 12 features; the graph has "
ONE = "these, and needs one"
NUMBERS = "reads numbers; embed the symbols of 'input'"


@pytest.mark.parametrize(
    ("input", "nodes", "head", "message"),
    [
        ((5,), OF_TEXT, Classes(), "the output has the shape (5, 7), not (classes,)"),
        (
            (3, 4, 4),
            (Node("pool", GlobalPool(), (INPUT,)),),
            NextSymbol(),
            "the input is (3, 4, 4); the next symbol is asked of (positions,)",
        ),
        ((5,), (RELU,), NextSymbol(), "the output has the shape (5,), not (5, symbols)"),
        (
            (5,),
            (Node("wide", Dense(5), (INPUT,)), replace(EMBEDDED, inputs=("wide",))),
            NextSymbol(),
            f"wide: Dense: {NUMBERS}",
        ),
        (
            (4, 3, 3),
            (Node("pool", GlobalPool(), (INPUT,)), replace(EMBEDDED, inputs=("pool",))),
            Classes(),
            "the output has the shape (4, 12), not (classes,)",
        ),
        (
            (5,),
            (
                *(EMBEDDED, RELU, Node("again", Embedding(7, 12), ("relu",))),
                Node("sum", Add(), ("embedding", "again")),
            ),
            NextSymbol(),
            f"relu: ReLU: {NUMBERS}",
        ),
        (
            (5,),
            (EMBEDDED, TIED, Node("more", Linear(7), ("tied",))),
            NextSymbol(),
            "tied: it is tied to an embedding; only the output can be",
        ),
        (
            (5,),
            (EMBEDDED, replace(TIED, layer=Linear(8, tied=True))),
            NextSymbol(),
            f"{NO_TABLE}8{TABLES}0 of {ONE}",
        ),
        (
            (5,),
            (
                *(EMBEDDED, replace(EMBEDDED, name="again")),
                *(Node("add", Add(), ("embedding", "again")), replace(TIED, inputs=("add",))),
            ),
            NextSymbol(),
            f"{NO_TABLE}7{TABLES}2 of {ONE}",
        ),
    ],
)
def test_a_question_that_does_not_fit_is_refused_in_one_line(
    input: Shape, nodes: tuple[Node, ...], head: Head, message: str
) -> None:
    with pytest.raises(ShapeError) as raised:
        Graph(input, nodes, head=head)
    assert str(raised.value) == message


def test_a_window_of_one_position_is_a_graph() -> None:
    graph = Graph((1,), OF_TEXT, head=NextSymbol())
    assert (graph.classes, graph.num_activations) == (7, 12 + 7)


@pytest.mark.parametrize("name", ["", "a\nb", "a\0b", "\ud800", "\u202e"])
def test_a_name_is_printable(name: str) -> None:
    with pytest.raises(ShapeError, match="a name needs printable characters only"):
        Node(name, ReLU(), (INPUT,))


def renamed(graph: Graph, name: str) -> Graph:
    new = {node.name: f"{name}{place}" for place, node in enumerate(graph.nodes)} | {INPUT: INPUT}
    nodes = [
        Node(new[node.name], node.layer, tuple(new[read] for read in node.inputs)) for node in graph.nodes
    ]
    return Graph(graph.input, tuple(nodes))


@given(graphs(), st.sampled_from(["x", "ü.", "0"]))
@settings(max_examples=50)
def test_the_key_and_the_cost_do_not_depend_on_names(graph: Graph, name: str) -> None:
    other = renamed(graph, name)
    assert other != graph
    assert (other.key, other.cost) == (graph.key, graph.cost)


def test_the_key_tells_architectures_apart() -> None:
    graph = residual()
    first = graph.nodes[0]
    block = [node.name for node in graph.nodes].index("stage2.block1.add")
    swapped = replace(graph.nodes[block], inputs=graph.nodes[block].inputs[::-1])
    others = [
        residual(classes=11),
        residual((3, 32, 32)),
        residual((1, 28, 32)),
        residual(widths=(4, 8, 32)),
        replace(graph, nodes=(replace(first, layer=Conv2d(4, 5)), *graph.nodes[1:])),
        replace(graph, nodes=(*graph.nodes[:block], swapped, *graph.nodes[block + 1 :])),
        # The head is a part of the architecture, also where no shape shows it.
        *(gpt_4x128((16,)), gpt_4x128((17,)), gpt_4x128((16,), 100), llama_4x128((16,))),
    ]
    assert len({graph.key, *[other.key for other in others]}) == 1 + len(others)


@given(graphs() | texts())
@settings(max_examples=80)
def test_the_facts_of_any_graph_agree_with_its_layers(graph: Graph) -> None:
    trained: set[str] = set()
    cost = Cost()
    for node in graph.nodes:
        reads = graph.reads(node)
        assert graph.shapes[node.name] == node.layer.shape(*reads)
        needed = not trained.isdisjoint(node.inputs)
        for row in node.layer.costs(*reads).values():
            cost += row if needed else replace(row, input_grad=Ops())
        if needed or node.layer.weights(*reads):
            trained.add(node.name)
    for name in trained:
        readers = sum(node.inputs.count(name) for node in graph.nodes)
        cost += Cost(input_grad=Ops(add=max(0, readers - 1) * prod(graph.shapes[name])))
    assert graph.trained == trained
    output = graph.shapes[graph.output]
    assert graph.cost == cost + graph.head.loss(output)
    assert graph.operations == graph.cost.train.price(OPS)
    assert graph.cost == sum((row.cost for row in graph.rows.values()), Cost())
    assert graph.num_parameters == sum(prod(shape) for shape in graph.weights.values())
    assert graph.classes == output[-1]
    assert hash(graph) == hash(replace(graph))


def figures(graph: Graph) -> tuple[object, ...]:
    shapes = list(graph.shapes.items())
    return shapes, graph.rows, graph.key, graph.weights, graph.num_activations, graph.operations


@pytest.mark.parametrize("seed", [residual(), resnet18((3, 64, 64), 10), resnet50((3, 64, 64), 10)])
@pytest.mark.parametrize("random_seed", range(2))
def test_a_graph_inferred_with_any_parents_help_is_the_one_without(seed: Graph, random_seed: int) -> None:
    lineage = [seed, *descendants(seed, random_seed, 20)]
    smaller = Graph((3, 32, 32), resnet18().nodes)
    for parent, child in pairwise(lineage):
        alone = figures(Graph(child.input, child.nodes))
        for other in (parent, child, seed, lineage[-1], smaller):
            assert figures(Graph(child.input, child.nodes, other)) == alone


def test_a_change_of_shape_is_followed_to_all_that_read_it() -> None:
    parent = resnet18((3, 64, 64), 10)
    wide = tuple(
        replace(node, layer=replace(node.layer, channels=96))
        if node.name == "stage2.block1.1.conv" and isinstance(node.layer, Conv2d)
        else node
        for node in parent.nodes
    )
    child = Graph(parent.input, wide, parent)
    changed = [name for name in child.shapes if child.shapes[name] != parent.shapes[name]]
    assert changed == ["stage2.block1.1.conv", "stage2.block1.1.bn", "stage2.block1.1.relu"]
    assert child.weights["stage2.block1.2.conv.weight"] == (128, 96, 3, 3)


@pytest.mark.parametrize("fault", ["missing", "below its reader", "twice", "no end", "of another width"])
def test_what_does_not_fit_is_refused_with_the_same_words(fault: str) -> None:
    parent = residual()
    nodes = list(parent.nodes)
    match fault:
        case "missing":
            del nodes[3]
        case "below its reader":
            nodes[3:5] = nodes[4], nodes[3]
        case "twice":
            nodes.insert(4, nodes[3])
        case "no end":
            del nodes[-2:]
        case _:
            place = [node.name for node in nodes].index("stage1.block1.2.conv")
            nodes[place] = replace(nodes[place], layer=Conv2d(5))
    refusals = []
    for helper in (None, parent):
        with pytest.raises(ShapeError) as raised:
            Graph(parent.input, tuple(nodes), helper)
        refusals.append(str(raised.value))
    assert refusals[0] == refusals[1]


def test_once_is_once_for_each_graph() -> None:
    asked = []

    @once
    def size(graph: Graph) -> int:
        asked.append(graph)
        return len(graph.nodes)

    small, large = residual(), resnet18()
    assert [size(small), size(large), size(small)] == [len(small.nodes), len(large.nodes), len(small.nodes)]
    assert len(asked) == 2
