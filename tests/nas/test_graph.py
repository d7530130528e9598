"""Graphs: their counts against reference figures and published ones, what cannot be built, and to JSON and
back, with every kind of damage on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from itertools import pairwise
from math import nan, prod
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas.graph import INPUT, Graph, Node, once
from nas.head import Classes, NextSymbol
from nas.layers import Add, Conv2d, Dense, Embedding, GlobalPool, Layer, Linear, ReLU
from nas.ops import OPS, TENSOR_OPS, Cost, Ops
from nas.record import RecordError, decode, encode, graph_from_json, graph_to_json
from nas.seeds import SEEDS, residual, resnet18, resnet50, resnet50_v1, resolve_seed
from nas.text_seeds import TEXT_SEEDS, gpt_4x128, llama_4x128
from tests.nas.graphs import SAMPLES, TEXT_SAMPLES, chain, graphs, texts
from tests.nas.grown import descendants
from tests.tables import ComesTo

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
    assert {key: {**ops._asdict(), "OPS": ops.price(OPS)} for key, ops in passes.items()} == right["by_kind"]
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


GOOD = (
    Node("conv", Conv2d(4), (INPUT,)),
    Node("pool", GlobalPool(), ("conv",)),
    Node("dense", Dense(3), ("pool",)),
)
BRANCH = Node("branch", ReLU(), ("conv",))


EMBEDDED = Node("embedding", Embedding(7, 12), (INPUT,))
OF_TEXT = (EMBEDDED, Node("symbols", Linear(7), ("embedding",)))
RELU = Node("relu", ReLU(), (INPUT,))
TIED = Node("tied", Linear(7, tied=True), ("embedding",))
POOL, WIDE = Node("pool", GlobalPool(), (INPUT,)), Node("wide", Dense(5), (INPUT,))
AGAIN, ADD = replace(EMBEDDED, name="again"), Node("add", Add(), ("embedding", "again"))
OF_SUM, LARGER = replace(TIED, inputs=("add",)), Linear(8, tied=True)
MORE, POOLED = Node("more", Linear(7), ("tied",)), replace(EMBEDDED, inputs=("pool",))
NEXT, SHAPE, ASKED = NextSymbol(), "the output has the shape", "the next symbol is asked of (positions,)"


def test_what_is_no_graph_is_refused_in_one_line(comes_to_what_was_read: ComesTo) -> None:
    for parent in (None, Graph((1, 4, 4), GOOD)):
        comes_to_what_was_read("refused_graphs.txt", globals() | {"parent": parent, "Classes": Classes})
    one_position = Graph((1,), OF_TEXT, head=NextSymbol())
    assert (one_position.classes, one_position.num_activations) == (7, 12 + 7)


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
        readers = [node for node in graph.nodes for read in node.inputs if read == name]
        assert graph.readers[name] == tuple(readers)
        cost += Cost(input_grad=Ops(add=max(0, len(readers) - 1) * prod(graph.shapes[name])))
    assert graph.trained == trained
    output = graph.shapes[graph.output]
    assert graph.cost == cost + graph.head.loss(output)
    assert graph.operations == graph.cost.train.price(OPS)
    assert graph.cost == sum((row.cost for row in graph.rows.values()), Cost())
    assert graph.num_parameters == sum(prod(shape) for shape in graph.weights.values())
    sizes = [node.layer.num_activations(*graph.reads(node)) for node in graph.nodes]
    assert graph.num_activations == sum(sizes)
    assert graph.classes == output[-1]
    assert hash(graph) == hash(replace(graph))


def figures(graph: Graph) -> tuple[object, ...]:
    shapes = list(graph.shapes.items())
    sums = graph.num_parameters, graph.num_activations, graph.operations
    return shapes, graph.rows, graph.key, graph.weights, graph.trained, sums


@pytest.mark.parametrize("seed", [residual(), resnet18((3, 64, 64), 10), resnet50((3, 64, 64), 10)])
@pytest.mark.parametrize("random_seed", range(2))
def test_a_graph_inferred_with_any_parents_help_is_the_one_without(seed: Graph, random_seed: int) -> None:
    lineage = [seed, *descendants(seed, random_seed, 20)]
    smaller = Graph((3, 32, 32), resnet18().nodes)
    for parent, child in pairwise(lineage):
        alone = figures(Graph(child.input, child.nodes))
        for other in (parent, child, seed, lineage[-1], smaller):
            assert figures(Graph(child.input, child.nodes, other)) == alone
            assert figures(other)  # what is known of a parent is taken over
            assert figures(Graph(child.input, child.nodes, other)) == alone


def test_once_is_once_for_each_graph() -> None:
    asked = []

    @once
    def size(graph: Graph) -> int:
        asked.append(graph)
        return len(graph.nodes)

    small, large = residual(), resnet18()
    assert [size(small), size(large), size(small)] == [len(small.nodes), len(large.nodes), len(small.nodes)]
    assert len(asked) == 2


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    rate: float
    note: str | None = None


@dataclass(frozen=True)
class Outer:
    inner: Inner
    colour: Colour
    pair: tuple[int, str]
    several: tuple[Inner, ...] = ()
    words: Mapping[str, int] | None = None
    anything: Any = 0


@given(graphs() | texts())
@settings(max_examples=80)
def test_a_graph_comes_back_from_its_text(graph: Graph) -> None:
    back = graph_from_json(json.dumps(graph_to_json(graph), allow_nan=False))
    assert back == graph
    assert (back.key, back.cost, back.shapes) == (graph.key, graph.cost, graph.shapes)


@pytest.mark.parametrize("build", [*SEEDS.values(), *TEXT_SEEDS.values()])
def test_a_seed_comes_back_from_its_text(build: Callable[[], Graph]) -> None:
    """Records of images are as before there were heads."""
    graph = build()
    record = graph_to_json(graph)
    assert record.pop("head", None) == (
        {"type": "NextSymbol"} if isinstance(graph.head, NextSymbol) else None
    )
    assert list(record) == ["input", "nodes"]
    assert graph_from_json(json.dumps(graph_to_json(graph))) == graph
    assert graph_from_json({**record, "head": {"type": type(graph.head).__name__}}) == graph


@pytest.mark.parametrize(
    "layer", [layer for layer, _ in [*SAMPLES.values(), *TEXT_SAMPLES.values()]], ids=str
)
def test_a_layer_comes_back(layer: Layer) -> None:
    assert decode(Layer, json.loads(json.dumps(encode(layer)))) == layer
    assert decode(type(layer), encode(layer)) == layer


OUTER = Outer(Inner(0.5), Colour.BLUE, (1, "x"), (Inner(1.0, "n"), Inner(2.0)), {"a": 1}, [1, {"b": None}])
FIELDS = {"inner": {"rate": 1}, "colour": "red", "pair": [1, "x"]}


def hostile(place: str, value: object) -> Graph:
    """A graph of this value at a key of its record, or of its second node."""
    record = graph_to_json(residual(widths=(4,)))
    key, _, field = place.partition(".")
    if field:
        record[key][1][field] = value
    else:
        record[key] = value
    return graph_from_json(record)


def unknown(named: object, key: str = "nodes.layer") -> str:
    """What is said of a layer or head of this type, with the first of those that there are."""
    with pytest.raises(RecordError) as raised:
        hostile(key, {"type": named})
    return str(raised.value).partition(",")[0]


def test_every_kind_of_field_is_written_and_read_and_what_is_wrong_is_named_with_its_place(
    comes_to_what_was_read: ComesTo,
) -> None:
    """A layer leaves out its defaults; a named tuple is a list of as many items. A member that is not known
    is named with those that are: a task that is installed may have its own."""
    names = {"nan": nan, "Dense": Dense, "Ops": Ops, "Layer": Layer, "json": json}
    built = {"chain": chain, "Conv2d": Conv2d, "GlobalPool": GlobalPool, "encode": encode}
    for table in ("records.txt", "refused_records.txt"):
        comes_to_what_was_read(table, globals() | names | built)


@pytest.mark.parametrize("record", ["", "{", f'{{"input": {"9" * 5000}}}'])
def test_a_text_that_is_no_json_is_refused_in_the_words_of_each_python(record: str) -> None:
    with pytest.raises(RecordError, match=r"^not valid JSON: .*$"):
        graph_from_json(record)


def test_two_members_of_one_name_are_refused() -> None:
    """Else the one that is imported later would be counted, silently."""

    @dataclass(frozen=True)
    class Family:
        pass

    members: list[type] = [dataclass(frozen=True)(type("Member", (Family,), {})) for _ in range(2)]
    with pytest.raises(RecordError, match=r"two classes are named Member, in .*; rename one"):
        decode(Family, {"type": members[0].__name__})


def test_a_broken_package_of_layers_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "nas.reader.import_layers_of_others", Mock(side_effect=ImportError("the layers of own fail"))
    )
    with pytest.raises(RecordError, match="the layers of own fail"):
        decode(Layer, {"type": "Unheard"})


FILES = {path.stem: path for path in (Path(__file__).parent / "published").glob("*.json")}
# Parameters and 10^9 multiply-accumulates forward, as `num_params` and `_ops` of torchvision 0.29's
# IMAGENET1K_V1 weights: github.com/pytorch/vision/tree/main/torchvision/models.
TORCHVISION = {
    "alexnet": (61_100_840, 0.714),
    "densenet121": (7_978_856, 2.834),
    "googlenet": (6_624_904, 1.498),
    # Less the auxiliary classifier: two convolutions with their batch norms, and a dense layer.
    "inception_v3": (27_161_264 - (768 * 128 + 256 + 128 * 768 * 25 + 1536 + 769_000), 5.713),
    "mobilenet_v2": (3_504_872, 0.301),
    "resnext50_32x4d": (25_028_904, 4.230),
    "squeezenet1_1": (1_235_496, 0.349),
    "vgg16": (138_357_544, 15.470),
}


@cache
def network(name: str) -> Graph:
    return resolve_seed(str(FILES[name]))


def test_every_file_has_published_figures() -> None:
    assert FILES.keys() == TORCHVISION.keys()


@pytest.mark.parametrize("name", TORCHVISION)
def test_parameters_and_products_are_the_published_ones(name: str) -> None:
    graph = network(name)
    assert (graph.num_parameters, round(graph.cost.forward.mac / 1e9, 3)) == TORCHVISION[name]
    assert graph_to_json(graph) == json.loads(FILES[name].read_text(encoding="utf-8"))
