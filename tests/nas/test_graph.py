"""Graphs: their counts against reference figures, and what cannot be built."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas.graph import INPUT, Graph, Node
from nas.layers import Add, BatchNorm, Concat, Conv2d, Dense, GlobalPool, MaxPool, ReLU, ShapeError
from nas.ops import OPS, TENSOR_OPS, Cost, Ops
from nas.seeds import residual, resnet50, resnet50_v1
from tests.nas.graphs import chain, graphs, grouped

REFERENCE = json.loads((Path(__file__).parent / "counts.json").read_text())["nets"]
NETWORKS = {"resnet50_v1.5": resnet50(), "resnet50_v1": resnet50_v1()}
FREE = Ops(mac=2, add=1, mul=1, div=1, sqrt=1, exp=1, cmp=1)  # the price list of `by_type`


@pytest.mark.parametrize("name", REFERENCE)
def test_operations_of_resnet50_by_type(name):
    found = {
        row: {
            "n": found.num,
            "fw": found.cost.forward.price(FREE),
            "dx": found.cost.input_grad.price(FREE),
            "dw": found.cost.weight_grad.price(FREE),
        }
        for row, found in NETWORKS[name].rows.items()
    }
    assert found == REFERENCE[name]["by_type"]


@pytest.mark.parametrize("name", REFERENCE)
def test_operations_of_resnet50_by_kind_and_pass(name):
    cost = NETWORKS[name].cost
    passes = {"forward": cost.forward, "backward": cost.backward, "evaluate": cost.evaluate}
    found = {key: {**vars(ops), "OPS": ops.price(OPS)} for key, ops in passes.items()}
    assert found == REFERENCE[name]["by_kind"]
    assert cost.train.price(OPS) == REFERENCE[name]["OPS_per_training_image"]
    assert NETWORKS[name].operations == REFERENCE[name]["OPS_per_training_image"]


@pytest.mark.parametrize("name", REFERENCE)
def test_tensor_operations_and_parameters_of_resnet50(name):
    graph = NETWORKS[name]
    assert graph.num_parameters == REFERENCE[name]["params"]
    assert {
        "macs_forward": graph.cost.forward.mac,
        "ops_forward": graph.cost.forward.price(TENSOR_OPS),
        "ops_backward_dx": graph.cost.input_grad.price(TENSOR_OPS),
        "ops_backward_dw": graph.cost.weight_grad.price(TENSOR_OPS),
        "ops_backward": graph.cost.backward.price(TENSOR_OPS),
        "ops_train_step_per_image": graph.cost.train.price(TENSOR_OPS),
    } == REFERENCE[name]["tensor"]


def test_nothing_is_charged_for_a_gradient_that_nobody_needs():
    graph = chain(MaxPool(2, 2), ReLU(), Conv2d(4, 1), ReLU(), GlobalPool(), Dense(3), input=(2, 4, 4))
    nothing = Ops()
    assert graph.rows["maxpool"].cost.input_grad == nothing
    assert graph.rows["conv"].cost.input_grad == nothing
    assert graph.rows["conv"].cost.weight_grad == Ops(mac=2 * 4 * 4)
    assert graph.rows["relu"].cost.forward == Ops(cmp=8 + 16)
    assert graph.rows["relu"].cost.input_grad == Ops(cmp=16)
    assert graph.trained == {"Conv2d.2", "ReLU.3", "GlobalPool.4", "Dense.5"}


def test_a_fork_gathers_its_gradients_where_one_is_needed():
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


def test_activations_are_the_outputs_of_all_nodes():
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


def test_grouped_convolutions_cost_a_group_each():
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


@pytest.mark.parametrize(
    ("input", "nodes", "message"),
    [
        ((1, 4, 4), (), "a graph needs at least one node"),
        ((), GOOD, f"the input is (); {SIZES}"),
        ((1, 4), GOOD, "conv: Conv2d: reads (channels, height, width), not (1, 4)"),
        ((1, 0, 4), GOOD, f"the input is (1, 0, 4); {SIZES}"),
        ((1, 4.0, 4), GOOD, f"the input is (1, 4.0, 4); {SIZES}"),
        ((1, 1 << 31, 4), GOOD, f"the input is (1, 2147483648, 4); {SIZES}"),
        ((True, 4, 4), GOOD, f"the input is (True, 4, 4); {SIZES}"),
        ((1, 4, 4), (*GOOD[:2], GOOD[1], GOOD[2]), "two nodes are named 'pool'"),
        ((1, 4, 4), (Node("input", ReLU(), ("input",)),), "two nodes are named 'input'"),
        ((1, 4, 4), (GOOD[0], GOOD[2], GOOD[1]), "dense reads 'pool', which does not come before it"),
        (
            (1, 4, 4),
            (GOOD[0], replace(GOOD[1], inputs=("con",))),
            "pool reads 'con', which does not come before it",
        ),
        (
            (1, 4, 4),
            (Node("self", Add(), ("self", INPUT)),),
            "self reads 'self', which does not come before it",
        ),
        ((1, 4, 4), (Node("none", ReLU(), ()),), "none: ReLU: reads one input, not 0"),
        ((1, 4, 4), (GOOD[0], GOOD[2]), "dense reads 'pool', which does not come before it"),
        (
            (1, 4, 4),
            (GOOD[0], replace(GOOD[2], inputs=("conv",))),
            "dense: Dense: reads (features,), not (4, 4, 4)",
        ),
        ((1, 4, 4), (GOOD[0], BRANCH, *GOOD[1:]), "no node reads branch"),
        (
            (1, 4, 4),
            (GOOD[0], BRANCH, replace(BRANCH, name="another"), *GOOD[1:]),
            "no node reads another, branch",
        ),
        ((1, 4, 4), GOOD[:1], "the output has the shape (4, 4, 4), not (classes,)"),
    ],
)
def test_refused_in_one_line(input, nodes, message):
    with pytest.raises(ShapeError) as raised:
        Graph(input, nodes)
    assert str(raised.value) == message


@pytest.mark.parametrize("name", ["", "a\nb", "a\0b", "\ud800", "\u202e"])
def test_a_name_is_printable(name):
    with pytest.raises(ShapeError, match="a name needs printable characters only"):
        Node(name, ReLU(), (INPUT,))


def renamed(graph: Graph, name: str) -> Graph:
    new = {node.name: f"{name}{place}" for place, node in enumerate(graph.nodes)} | {INPUT: INPUT}
    nodes = [
        Node(new[node.name], node.layer, tuple(new[read] for read in node.inputs)) for node in graph.nodes
    ]
    return Graph(graph.input, tuple(nodes))


@given(graphs(), st.sampled_from(["x", "ü.", "0"]))
def test_the_key_and_the_cost_do_not_depend_on_names(graph, name):
    other = renamed(graph, name)
    assert other != graph
    assert (other.key, other.cost) == (graph.key, graph.cost)


def test_the_key_tells_architectures_apart():
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
    ]
    assert len({graph.key, *[other.key for other in others]}) == 1 + len(others)


def test_the_key_of_the_seed_stays():
    """Journals hold it: a change of this text makes every earlier run unreadable."""
    assert residual().key == "c67412bb711b9889d2836169e940c00a6394f88f92b279a103bfa05686f64430"


@given(graphs())
@settings(max_examples=60)
def test_the_facts_of_any_graph_agree_with_its_layers(graph):
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
        reads = sum(node.inputs.count(name) for node in graph.nodes)
        cost += Cost(input_grad=Ops(add=max(0, reads - 1) * prod(graph.shapes[name])))
    assert graph.trained == trained
    assert graph.cost == cost + graph.rows["softmax_xent"].cost
    assert graph.operations == graph.cost.train.price(OPS)
    assert graph.cost == sum((row.cost for row in graph.rows.values()), Cost())
    assert graph.num_parameters == sum(prod(shape) for shape in graph.weights.values())
    assert graph.classes == graph.shapes[graph.output][0]
    assert hash(graph) == hash(replace(graph))
