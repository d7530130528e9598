"""The starting architectures, by name and from files, the counts of those of text by hand, and their weights
at the start."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nas.graph import Graph
from nas.layers import BatchNorm, Conv2d, Dense, GlobalPool, Layer, Shape
from nas.ops import OPS, TENSOR_OPS
from nas.products import all_pairs, least_products
from nas.record import graph_to_json
from nas.seeds import SEEDS, residual, resnet18, resnet50, resnet50_v1, resolve_seed
from nas.text_seeds import gpt2_small_bytes, gpt_4x128, llama_4x128
from nas.weights import Weights, digest, generator, initial, starts
from tests.nas.graphs import SAMPLES, TEXT_SAMPLES, chain
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
    768 and MLPs of 3,072, at 1,024 positions; 2 · 256 · 768 + 1,024 · 768 parameters of symbols and
    positions, 12 · 12 · 768² of matrices, 12 · 9 · 768 biases, and 25 · 2 · 768 of norms. The small Llama: 4
    blocks of 4 heads of 32 in 2 groups and MLPs of 352, at 256; 2 · 256 · 128 parameters of symbols, 4 · (2 ·
    128 · 192 + 3 · 128 · 352) of matrices, and 9 · 128 of norms."""
    gpt2, llama = gpt2_small_bytes(), llama_4x128()
    assert (gpt2.num_parameters, llama.num_parameters) == (86_235_648, 803_968)
    assert gpt2.cost.train.price(TENSOR_OPS) == 581_085_167_616
    assert gpt2.operations == gpt2.cost.train.price(OPS) == 584_240_935_936
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


@pytest.mark.parametrize("sample", [*SAMPLES.values(), *TEXT_SAMPLES.values()], ids=str)
def test_every_tensor_of_a_layer_has_a_start(sample: tuple[Layer, tuple[Shape, ...]]) -> None:
    layer, reads = sample
    for tensor, shape in {**layer.weights(*reads), **layer.statistics(*reads)}.items():
        values = starts(layer, tensor, shape, reads, np.random.default_rng(0))
        assert (values.shape, values.dtype) == (shape, np.dtype(np.float32))


def test_a_grouped_convolution_counts_all_its_channels_in_the_fan_out() -> None:
    values = initial(chain(Conv2d(512, 3, groups=4), GlobalPool(), input=(64, 8, 8)), 0)["Conv2d.0.weight"]
    assert values.std() == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.02)


def test_a_tensor_depends_on_the_seed_and_its_name_alone() -> None:
    short = chain(Conv2d(4), GlobalPool(), Dense(3))
    long = chain(Conv2d(4), GlobalPool(), Dense(3), Dense(3))
    for name, values in initial(short, 7).items():
        assert np.array_equal(values, initial(long, 7)[name])
        assert not np.array_equal(values, initial(long, 8)[name])
    assert generator(1, "23").random() != generator(12, "3").random()


def test_the_fingerprint_sees_names_types_shapes_and_values_but_neither_order_nor_layout() -> None:
    found = {"a.weight": np.arange(6, dtype=np.float32), "b.weight": np.ones(2, np.float32)}
    same = {name: np.array(found[name]) for name in reversed(found)}
    assert digest(found) == digest(same)
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert digest({"a": rows}) == digest({"a": np.asfortranarray(rows)})
    others: list[Weights] = [
        {"a.weight": found["a.weight"], "c.weight": found["b.weight"]},
        {**found, "a.weight": found["a.weight"].reshape(2, 3)},
        {**found, "a.weight": found["a.weight"].astype(np.float64)},
        {**found, "a.weight": found["a.weight"].view(np.int32)},
        {**found, "b.weight": np.nextafter(found["b.weight"], np.float32(2))},
        {"a.weight": found["a.weight"]},
        {},
    ]
    assert len({digest(found), *map(digest, others)}) == 1 + len(others)


def test_the_fingerprint_of_a_seed_is_pinned() -> None:
    """It stands in the journal; numpy promises its random streams for one version only."""
    images, text = chain(Conv2d(4), BatchNorm(), GlobalPool(), Dense(3)), llama_4x128()
    of_images = "46639c07b99ce665c6a874821a31eee16231f532f660fc5ad46f01017f8e16fe"
    assert digest(initial(images, 1)) == of_images
    assert digest(initial(text, 1)) == "0eab0352a7cdae8ed9222662e69d6d24d43071e3967e89e9e811bc0a154f1ec8"
