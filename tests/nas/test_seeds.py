"""The starting architectures, by name and from files, and the counts of those of text by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nas.graph import Graph
from nas.layers import Shape
from nas.ops import OPS, TENSOR_OPS
from nas.products import all_pairs, least_products
from nas.record import graph_to_json
from nas.seeds import SEEDS, residual, resnet18, resnet50, resnet50_v1, resolve_seed
from nas.text_seeds import gpt2_small_bytes, gpt_4x128, llama_4x128
from tests.tables import ComesTo


@pytest.mark.parametrize("name", SEEDS)
def test_every_seed_takes_images_and_classes(name: str) -> None:
    graph = SEEDS[name]((3, 64, 48), 7)
    assert (graph.input, graph.classes) == ((3, 64, 48), 7)
    assert SEEDS[name]((1, 1, 1), 1).classes == 1


def test_parameters_of_resnets() -> None:
    """25,557,032 and 11,689,512: torchvision's model cards. 5,142: convolutions 36 + 2·144 + 288 + 576 + 32 +
    1,152 + 2,304 + 128, norms 2·84, classifier 170."""
    graphs = (resnet50(), resnet50_v1(), resnet18(), residual())
    assert [graph.num_parameters for graph in graphs] == [25_557_032, 25_557_032, 11_689_512, 5_142]


def test_figures_of_text_networks() -> None:
    """By arithmetic, from the figures of each layer in test_layers. GPT-2 small: 12 blocks of 12 heads, width
    768 and MLPs of 3,072, at 1,024 positions. The small Llama: 4 blocks of 4 heads of 32 in 2 groups and MLPs
    of 352, at 256."""
    gpt2, llama = gpt2_small_bytes(), llama_4x128()
    d, symbols = 768, 256
    matrices, biases = 12 * (4 * d * d + 2 * d * 4 * d) + d * symbols, 12 * (4 * d + 4 * d + d)
    assert gpt2.num_parameters == symbols * d + 1024 * d + matrices + biases + 25 * 2 * d == 86_235_648
    assert gpt2.cost.train.price(TENSOR_OPS) == 581_085_167_616
    assert gpt2.operations == gpt2.cost.train.price(OPS) == 584_240_935_936
    assert (
        llama.num_parameters == 256 * 128 + 4 * (2 * 128 * (128 + 64) + 3 * 128 * 352) + 128 * 256 + 9 * 128
    )
    assert llama.cost.train.price(TENSOR_OPS) == 1_384_906_752


def test_what_published_mfu_counts() -> None:
    """Per position: 6 for each weight that multiplies, 12 · layers · width · positions (PaLM, app. B)."""
    graph = gpt2_small_bytes()
    multiplying = 12 * 12 * 768 * 768 + 768 * 256
    pairs = all_pairs(graph)
    assert pairs is not None
    assert pairs.train.price(TENSOR_OPS) == 1024 * (6 * multiplying + 12 * 12 * 768 * 1024)
    assert pairs.evaluate.price(TENSOR_OPS) * 3 == pairs.train.price(TENSOR_OPS)
    assert all_pairs(resolve_seed("resnet18")) is None


def test_nothing_of_a_text_can_be_left_out() -> None:
    cost = gpt_4x128().cost
    assert least_products(gpt_4x128()) == (cost.train.mac, cost.evaluate.mac)


def test_the_key_of_a_seed_stays() -> None:
    """Journals hold it: a change of this text makes every earlier run unreadable."""
    assert residual().key == "c67412bb711b9889d2836169e940c00a6394f88f92b279a103bfa05686f64430"
    assert gpt_4x128().key == "624e85900c1474f74b626036f7d998275fad1437959face1d83f65e4580ad1f0"


def test_resolved_by_name_and_by_file(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    for name, graph in {
        "resnet50": resnet50(),
        "residual-4-8-16": residual((3, 28, 28), 7),
        "gpt-4x128": gpt_4x128((128,), 100),
    }.items():
        assert resolve_seed(name, graph.input, graph.classes) == graph
        path.write_text(json.dumps(graph_to_json(graph)))
        assert resolve_seed(str(path), graph.input, graph.classes) == resolve_seed(str(path)) == graph
    assert resolve_seed("resnet50") == resnet50()
    assert resolve_seed("residual-4-8-16", (3, 28, 28)) == residual((3, 28, 28))
    assert resolve_seed("gpt-4x128") == gpt_4x128()


def test_a_seed_of_a_task_comes_before_one_of_this_package() -> None:
    """Its parameters may have any names."""

    def of_a_task(shape: Shape, answers: int) -> Graph:
        return residual(shape, answers, widths=(2, 2))

    seeds = {"residual-4-8-16": of_a_task, "other": of_a_task}
    for name in seeds:
        assert resolve_seed(name, (1, 8, 16), 3, seeds) == of_a_task((1, 8, 16), 3)
    assert resolve_seed("resnet18", (3, 32, 32), 3, seeds) == resnet18((3, 32, 32), 3)


def of_file(content: bytes) -> Graph:
    Path("FILE").write_bytes(content)
    return resolve_seed("FILE")


def test_other_examples_names_and_files_are_refused_in_one_line(
    here: Path, comes_to_what_was_read: ComesTo
) -> None:
    Path("TEXT").write_text(json.dumps(graph_to_json(llama_4x128((32,)))))
    Path("IMAGES").write_text(json.dumps(graph_to_json(residual((3, 28, 28), 7))))
    comes_to_what_was_read("refused_seeds.txt", globals())
