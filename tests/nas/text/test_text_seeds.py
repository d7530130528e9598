"""The starting architectures of text: their counts by hand, their records, and how they are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings

from nas.graph import Graph
from nas.head import Classes, NextSymbol
from nas.layers import ShapeError
from nas.ops import OPS, TENSOR_OPS, Cost, Ops
from nas.products import all_pairs, least_products
from nas.record import RecordError, graph_from_json, graph_to_json
from nas.seeds import SEEDS, SeedError, resolve_seed
from nas.text_seeds import TEXT_SEEDS, gpt2_small_bytes, gpt_4x128, llama_4x128
from tests.nas.text.samples import texts


def test_the_names() -> None:
    llamas = ["llama-1x64", "llama-2x64", "llama-4x128", "llama-12x768"]
    assert list(TEXT_SEEDS) == [*llamas, "gpt-4x128", "gpt2-small-bytes"]
    assert not TEXT_SEEDS.keys() & SEEDS.keys()


def test_gpt2_small_by_hand() -> None:
    """12 blocks of 12 heads and width 768 = 12 · 64, MLPs of 3,072, at 1,024 positions of 256 symbols."""
    graph, positions, d, blocks, heads, symbols = gpt2_small_bytes(), 1024, 768, 12, 12, 256
    matrices = blocks * (4 * d * d + 2 * d * 4 * d) + d * symbols
    biases = blocks * (4 * d + 4 * d + d)
    norms = 2 * blocks + 1
    assert (
        graph.num_parameters == symbols * d + positions * d + matrices + biases + norms * 2 * d == 86_235_648
    )
    pairs, rows, x = heads * positions * (positions + 1) // 2, heads * positions, positions * d
    assert pairs == 6_297_600
    linear = matrices * positions
    forward = Ops(
        mac=linear + blocks * 2 * pairs * 64,
        # positions, biases, norms, softmax, residuals, GELU, loss
        add=x
        + positions * biases
        + norms * positions * (4 * d - 1)
        + blocks * (2 * pairs - rows)
        + 2 * blocks * x
        + blocks * 4 * x
        + positions * (2 * symbols + 1),
        # norms, scale of the scores, GELU
        mul=norms * 3 * x + blocks * pairs + blocks * 3 * 4 * x,
        # norms, softmax, loss
        div=norms * 3 * positions + blocks * pairs + positions * symbols,
        sqrt=norms * positions,
        # softmax, erf, loss
        exp=blocks * pairs + blocks * 4 * x + positions * (symbols + 1),
        cmp=blocks * (pairs - rows) + positions * (symbols - 1),
    )
    input_grad = Ops(
        mac=linear + blocks * 4 * pairs * 64,
        # norms, softmax, GELU, loss; and where the trunk (both norms, both sums) or a norm (q, k, v) is read
        # by several: 2 in front of each of 24 sums, 3 behind each first norm
        add=norms * positions * (4 * d - 2)
        + blocks * (2 * pairs - rows)
        + blocks * 4 * x
        + positions * symbols
        + blocks * (1 + 1 + 2) * x,
        mul=norms * 4 * x + blocks * 3 * pairs + blocks * 5 * 4 * x + positions * symbols,
        div=norms * 2 * positions,
        exp=blocks * 4 * x,
    )
    weight_grad = Ops(
        mac=linear,
        # embedding, positions, biases, norms
        add=x + x + positions * biases + norms * 2 * x,
        mul=norms * x,
    )
    # The loss is not computed, but log p is: no division, and a sum less.
    evaluate = forward + Ops(add=-positions, div=-positions * symbols)
    assert graph.cost == Cost(forward, input_grad, weight_grad, evaluate)
    assert graph.cost.train.price(TENSOR_OPS) == 581_085_167_616
    assert graph.operations == graph.cost.train.price(OPS) == 584_240_935_936


def test_grouped_keys_and_a_gated_mlp_by_hand() -> None:
    """4 blocks, 4 heads of 32 in 2 groups, MLPs of 352, at 256 positions of 256 symbols."""
    graph, positions, d, blocks = llama_4x128(), 256, 128, 4
    attention = 2 * d * d + 2 * d * 64
    mlp = 3 * d * 352
    matrices = blocks * (attention + mlp) + d * 256
    assert graph.num_parameters == 256 * d + matrices + 9 * d == 803_968
    pairs, rows = 4 * 256 * 257 // 2, 4 * 256
    assert graph.rows["linear"].cost.forward == Ops(mac=positions * matrices)
    assert graph.rows["attention"].cost == Cost(
        Ops(mac=2 * pairs * 32, mul=pairs, add=2 * pairs - rows, cmp=pairs - rows, exp=pairs, div=pairs) * 4,
        Ops(mac=4 * pairs * 32, mul=3 * pairs, add=2 * pairs - rows + 2 * 2 * positions * 32) * 4,
        Ops(),
        Ops(mac=2 * pairs * 32, mul=pairs, add=2 * pairs - rows, cmp=pairs - rows, exp=pairs, div=pairs) * 4,
    )
    turned = (4 + 2) * positions * 32
    turn = Ops(mul=2 * turned, add=turned) * 4
    assert graph.rows["rotary"].cost == Cost(turn, turn, Ops(), turn)
    hidden = positions * 352
    silu = Ops(exp=hidden, add=hidden, div=hidden, mul=hidden) * 4
    assert graph.rows["silu"].cost == Cost(silu, Ops(mul=3 * hidden, add=2 * hidden) * 4, Ops(), silu)
    product = Ops(mul=hidden) * 4
    assert graph.rows["product"].cost == Cost(product, product * 2, Ops(), product)
    assert graph.cost.train.price(TENSOR_OPS) == 1_384_906_752


def test_what_published_mfu_counts() -> None:
    """Of a position: 6 for each weight that multiplies, 12 · layers · width · positions (PaLM, app. B)."""
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


@pytest.mark.parametrize("name", TEXT_SEEDS)
def test_a_seed_comes_back_from_its_text(name: str) -> None:
    graph = TEXT_SEEDS[name]()
    record = graph_to_json(graph)
    assert record["head"] == {"type": "NextSymbol"}
    back = graph_from_json(json.dumps(record))
    assert (back, back.key, back.cost) == (graph, graph.key, graph.cost)


@given(texts())
@settings(max_examples=60)
def test_any_text_network_comes_back_from_its_text(graph: Graph) -> None:
    back = graph_from_json(json.dumps(graph_to_json(graph), allow_nan=False))
    assert (back, back.key, back.cost, back.shapes) == (graph, graph.key, graph.cost, graph.shapes)


@given(texts())
@settings(max_examples=60)
def test_the_facts_of_any_text_network_agree_with_each_other(graph: Graph) -> None:
    assert graph.cost == sum((row.cost for row in graph.rows.values()), Cost())
    assert graph.operations == graph.cost.train.price(OPS)
    assert graph.rows["softmax_xent"].cost == NextSymbol().loss((*graph.input, graph.classes))


def test_images_keep_the_records_of_before() -> None:
    graph = resolve_seed("residual-4-8-16")
    assert list(graph_to_json(graph)) == ["input", "nodes"]
    assert graph_from_json({**graph_to_json(graph), "head": {"type": "Classes"}}) == graph
    assert graph.head == Classes()


@pytest.mark.parametrize(
    ("head", "kind", "message"),
    [
        ("NextSymbol", RecordError, "head is 'NextSymbol'; it must be an object of Head"),
        (
            {"type": "NextWord"},
            RecordError,
            "head: 'NextWord' is not a known Head; known: Classes, NextSymbol",
        ),
        ({"type": "NextSymbol", "symbols": 7}, RecordError, "unknown key head.symbols; known: none"),
        ({"type": "Classes"}, ShapeError, "the output has the shape (64, 256), not (classes,)"),
    ],
)
def test_a_hostile_head_is_refused(head: object, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as raised:
        graph_from_json({**graph_to_json(gpt_4x128()), "head": head})
    assert str(raised.value) == message


def test_the_key_of_a_text_seed_stays() -> None:
    assert gpt_4x128().key == "624e85900c1474f74b626036f7d998275fad1437959face1d83f65e4580ad1f0"


def test_the_head_is_a_part_of_the_architecture() -> None:
    """Also where no shape shows it."""
    keys = {gpt_4x128((16,)).key, gpt_4x128((17,)).key, gpt_4x128((16,), 100).key, llama_4x128((16,)).key}
    assert len(keys) == 4


def test_resolved_by_name_and_by_file(tmp_path: Path) -> None:
    assert resolve_seed("gpt-4x128") == gpt_4x128()
    assert resolve_seed("gpt-4x128", (128,), 100) == gpt_4x128((128,), 100)
    path = tmp_path / "text.json"
    path.write_text(json.dumps(graph_to_json(llama_4x128((32,)))))
    assert resolve_seed(str(path), (32,), 256) == llama_4x128((32,))


@pytest.mark.parametrize(
    ("name", "input", "classes", "message"),
    [
        ("gpt-4x128", (1, 32, 32), 10, "gpt-4x128 is for text, not for images of (1, 32, 32)"),
        ("resnet18", (64,), None, "resnet18 is for images, not for text of 64 positions"),
        ("FILE", (1, 32, 32), None, "FILE is for text of 32 positions, not for images of (1, 32, 32)"),
        ("FILE", (64,), None, "FILE is for text of 32 positions, not (64,)"),
        ("FILE", (32,), 10, "FILE is for 256 symbols, not 10"),
    ],
)
def test_other_examples_are_refused_in_one_line(
    tmp_path: Path, name: str, input: tuple[int, ...], classes: int | None, message: str
) -> None:
    path = tmp_path / "text.json"
    path.write_text(json.dumps(graph_to_json(llama_4x128((32,)))))
    with pytest.raises(SeedError) as raised:
        resolve_seed(name.replace("FILE", str(path)), input, classes)
    assert str(raised.value) == message.replace("FILE", str(path))
