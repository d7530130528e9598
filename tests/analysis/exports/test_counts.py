"""The table of operations, whole, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.exports.counts import count_json, count_text
from nas.layers import Conv2d, Dense, Flatten, GlobalPool
from nas.seeds import residual, resnet50
from nas.text_seeds import gpt2_small_bytes, llama_4x128
from tests.nas.graphs import chain

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("file", "graph", "bytes_per_element"),
    [
        ("counts_resnet50.txt", resnet50(), 4),
        ("counts_residual.txt", residual(), 2),
        ("counts_llama.txt", llama_4x128(), 2),
    ],
)
def test_the_tables_whole(file, graph, bytes_per_element):
    assert count_text(graph, bytes_per_element) == (HERE / file).read_text(encoding="utf-8")


def test_the_record_whole():
    graph = chain(Conv2d(2, 1), GlobalPool(), Dense(2, bias=False), input=(1, 2, 2))
    assert count_json(graph, 2) == json.loads((HERE / "counts.json").read_text())


@pytest.mark.parametrize(("graph", "example"), [(resnet50(), "image"), (gpt2_small_bytes(), "example")])
def test_text_and_record_hold_the_same_figures(graph, example):
    record = count_json(graph)
    words = count_text(graph).split()
    passes = list(record["total"])
    assert passes == ["forward", "backward_dx", "backward_dw", "backward", f"training_{example}", "evaluate"]
    for row in [record["total"], *record["rows"].values()]:
        for name in passes:
            assert f"{row[name]['ops']:,}" in words
            assert f"{row[name]['tensor_ops']:,}" in words
            weighed = sum(record["prices"]["ops"][kind] * num for kind, num in row[name]["kinds"].items())
            assert weighed == row[name]["ops"]
    for name in ("parameters", "activations", "activation_bytes"):
        assert f"{record[name]:,}" in words
    assert record["activation_bytes"] == 4 * record["activations"]


def test_all_pairs_stand_beside_the_triangle():
    """Attention's 2T/(T + 1) times as many products, and nothing else."""
    record = count_json(gpt2_small_bytes())
    for name, cell in record["total_all_pairs"].items():
        attention = record["rows"]["attention"][name]["tensor_ops"]
        assert (cell["tensor_ops"] - record["total"][name]["tensor_ops"]) * 1025 == attention * 1023
        assert f"{cell['tensor_ops']:,}" in count_text(gpt2_small_bytes()).split()
    assert "total_all_pairs" not in count_json(resnet50())


def test_rows_add_up_to_the_total():
    record = count_json(residual())
    for name, cell in record["total"].items():
        for price in ("ops", "tensor_ops"):
            assert cell[price] == sum(row[name][price] for row in record["rows"].values())


def test_a_layer_that_costs_nothing_is_in_the_table():
    graph = chain(Conv2d(2), Flatten(), Dense(2), input=(1, 4, 4))
    lines = [line.split() for line in count_text(graph).splitlines()]
    assert ["flatten", "1", "0", "0", "0", "0", "0", "0"] in lines
