"""The starting architectures, by name and from files."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from nas.graph import Graph
from nas.layers import Conv2d, ShapeError
from nas.record import graph_to_json
from nas.seeds import SEEDS, SeedError, residual, resnet18, resnet50, resnet50_v1, resolve_seed


def test_the_names():
    assert list(SEEDS) == ["resnet50", "resnet50-v1", "resnet18", "residual-4-8-16"]


def strides(graph: Graph, kernel: int) -> list[str]:
    return [
        node.name
        for node in graph.nodes
        if isinstance(node.layer, Conv2d) and (node.layer.stride, node.layer.kernel) == (2, kernel)
    ]


def test_where_the_stride_of_a_bottleneck_stands():
    shortcuts = [f"stage{stage}.block1.shortcut.conv" for stage in (2, 3, 4)]
    assert strides(resnet50(), 3) == [f"stage{stage}.block1.2.conv" for stage in (2, 3, 4)]
    assert strides(resnet50(), 1) == shortcuts
    assert strides(resnet50_v1(), 3) == []
    assert sorted(strides(resnet50_v1(), 1)) == sorted(
        [f"stage{stage}.block1.1.conv" for stage in (2, 3, 4)] + shortcuts
    )


@pytest.mark.parametrize(
    ("graph", "parameters", "convolutions"),
    [
        # 25,557,032 and 11,689,512: torchvision's model cards.
        (resnet50(), 25_557_032, 53),
        (resnet50_v1(), 25_557_032, 53),
        (resnet18(), 11_689_512, 20),
        # convolutions 36 + 2·144 + 288 + 576 + 32 + 1,152 + 2,304 + 128; norms 2·84; classifier 170
        (residual(), 5_142, 9),
    ],
)
def test_parameters_and_convolutions(graph, parameters, convolutions):
    assert graph.num_parameters == parameters
    assert graph.rows["conv"].num == graph.rows["bn"].num == convolutions


def test_stages_of_the_small_seed():
    graph = residual((1, 28, 28))
    shapes = Counter(graph.shapes[node.name] for node in graph.nodes if node.name.endswith(".add"))
    assert shapes == {(4, 28, 28): 1, (8, 14, 14): 1, (16, 7, 7): 1}


@pytest.mark.parametrize("name", SEEDS)
def test_every_seed_takes_images_and_classes(name):
    graph = SEEDS[name]((3, 64, 48), 7)
    assert (graph.input, graph.classes) == ((3, 64, 48), 7)
    assert SEEDS[name]((1, 1, 1), 1).classes == 1


def test_resolve_by_name():
    assert resolve_seed("resnet50") == resnet50()
    assert resolve_seed("residual-4-8-16", (3, 28, 28)) == residual((3, 28, 28))
    assert resolve_seed("residual-4-8-16", (3, 28, 28), 7) == residual((3, 28, 28), 7)


def test_resolve_by_file(tmp_path):
    path = tmp_path / "graph.json"
    graph = residual((3, 28, 28), 7)
    path.write_text(json.dumps(graph_to_json(graph)))
    assert resolve_seed(str(path)) == graph
    assert resolve_seed(str(path), (3, 28, 28), 7) == graph
    with pytest.raises(SeedError) as raised:
        resolve_seed(str(path), (3, 32, 32), 7)
    assert str(raised.value) == f"{path} is for images of (3, 28, 28), not (3, 32, 32)"
    with pytest.raises(SeedError) as raised:
        resolve_seed(str(path), classes=10)
    assert str(raised.value) == f"{path} is for 7 classes, not 10"


def test_an_unknown_name_lists_the_seeds():
    with pytest.raises(SeedError) as raised:
        resolve_seed("resnet51")
    assert str(raised.value) == (
        "'resnet51' is neither a seed nor a file; did you mean 'resnet50'? "
        "seeds: resnet50, resnet50-v1, resnet18, residual-4-8-16, "
        "llama-1x64, llama-2x64, llama-4x128, llama-12x768, gpt-4x128, gpt2-small-bytes"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"\xff", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (b"{}", "Graph lacks input, nodes"),
        (b'{"input": [1, 4, 4], "nodes": []}', "a graph needs at least one node"),
    ],
)
def test_a_file_that_holds_no_graph(tmp_path, content, message):
    path = tmp_path / "graph.json"
    path.write_bytes(content)
    with pytest.raises(SeedError) as raised:
        resolve_seed(str(path))
    assert str(raised.value) == f"{path}: {message}"


def test_a_path_that_cannot_be_read(tmp_path):
    with pytest.raises(SeedError) as raised:
        resolve_seed(str(tmp_path))
    assert (
        str(raised.value)
        == f"{tmp_path}: it is a directory, not a file; give the JSON file of a graph, or a seed"
    )
    with pytest.raises(SeedError, match="embedded null"):
        resolve_seed("a\0b")


def test_a_file_without_an_end_and_a_key_that_stands_twice(tmp_path):
    with pytest.raises(SeedError, match=r"^/dev/zero: it is a device, not a file; give"):
        resolve_seed("/dev/zero")
    path = tmp_path / "graph.json"
    path.write_text('{"input": [1, 4, 4], "input": [1, 8, 8], "nodes": []}')
    with pytest.raises(SeedError, match=r"not valid JSON: 'input' appears twice$"):
        resolve_seed(str(path))


def test_sizes_that_cannot_be():
    with pytest.raises(ShapeError, match="Dense: features is 0"):
        resolve_seed("resnet50", classes=0)
    with pytest.raises(ShapeError, match=r"the input is \(3, 0, 0\)"):
        resolve_seed("resnet50", (3, 0, 0))
