"""Products of text networks against what was really executed: by torch's counter, and by MKL's own record.

Neither sees the causal triangle: both have T² pairs, which are 2T/(T + 1) times those that we count. The
triangle itself is held by loops over pairs, in test_text_layers.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from nas.graph import INPUT, Graph, Node
from nas.head import NextSymbol
from nas.layers import Add, Attention, Embedding, Experts, Linear, Product, RMSNorm, SiLU
from nas.modules import Network
from nas.morphisms.text import DeepenPlain, Nonlinearity, Upcycle
from nas.ops import TENSOR_OPS, Cost, Ops
from nas.products import all_pairs
from nas.record import graph_to_json
from nas.text_seeds import TEXT_SEEDS, gpt_4x128, llama_4x128
from tests.house.tree import ROOT
from tests.nas.text.samples import texts

BATCH = 2
PASSES = ("forward", "backward")
MATRICES = ("linear", "router", "experts")  # rows of the table whose products are of matrices


def as_executed(graph: Graph) -> Counter[tuple[str, str]]:
    """Of one example, by kind of product and pass, as T² pairs."""
    square = Fraction(2 * graph.input[0], graph.input[0] + 1)
    found: Counter[tuple[str, str]] = Counter()
    for name, row in graph.rows.items():
        kind, times = ("attention", square) if name == "attention" else ("linear", Fraction(1))
        for direction in PASSES if name in (*MATRICES, "attention") else ():
            found[kind, direction] += getattr(row.cost, direction).price(TENSOR_OPS) * times
    return found


def by_torch(graph: Graph) -> dict[tuple[str, str], int]:
    """Products of batches are those of attention; of matrices, those of linear layers."""
    with torch.device("meta"):
        network, symbols = Network(graph), torch.zeros(BATCH, *graph.input, dtype=torch.int64)
    counter, counts = FlopCounterMode(display=False), {}
    with sdpa_kernel([SDPBackend.MATH]), counter:
        loss = F.cross_entropy(network(symbols).flatten(0, 1), symbols.flatten())
        counts["forward"] = dict(counter.get_flop_counts()["Global"])
        loss.backward()
    counts["backward"] = counter.get_flop_counts()["Global"]
    found: Counter[tuple[str, str]] = Counter()
    for direction in PASSES:
        for operator, number in counts[direction].items():
            kind = "attention" if operator is torch.ops.aten.bmm else "linear"
            assert operator in (torch.ops.aten.bmm, torch.ops.aten.mm, torch.ops.aten.addmm), operator
            found[kind, direction] += number - (
                counts["forward"].get(operator, 0) if direction == "backward" else 0
            )
    assert all(number % BATCH == 0 for number in found.values())
    return {what: number // BATCH for what, number in found.items()}


@pytest.mark.parametrize("name", TEXT_SEEDS)
def test_products_of_a_seed_are_those_that_torch_counts(name: str) -> None:
    graph = TEXT_SEEDS[name]()
    assert by_torch(graph) == as_executed(graph)
    pairs = all_pairs(graph)
    assert pairs is not None
    assert pairs.train.price(TENSOR_OPS) == sum(by_torch(graph).values())


@given(texts())
@settings(max_examples=40, deadline=None)
def test_products_of_any_text_network_are_those_that_torch_counts(graph: Graph) -> None:
    assert by_torch(graph) == as_executed(graph)


def one_head(positions: int) -> Graph:
    """Its attention is single products, whose sizes MKL records; of many at once it records none."""
    nodes = (
        Node("embedding", Embedding(11, 24), (INPUT,)),
        Node("norm", RMSNorm(), ("embedding",)),
        *(Node(name, Linear(16), ("norm",)) for name in ("query", "key", "value")),
        Node("attention", Attention(1, 1), ("query", "key", "value")),
        Node("out", Linear(24, bias=True), ("attention",)),
        Node("add", Add(), ("embedding", "out")),
        Node("gate", Linear(40), ("add",)),
        Node("silu", SiLU(), ("gate",)),
        Node("in", Linear(40), ("add",)),
        Node("product", Product(), ("silu", "in")),
        Node("symbols", Linear(11), ("product",)),
    )
    return Graph((positions,), nodes, head=NextSymbol())


def mixture() -> Graph:
    nodes = (
        Node("embedding", Embedding(11, 24), (INPUT,)),
        Node("experts", Experts(8, 2, 40), ("embedding",)),
        Node("add", Add(), ("embedding", "experts")),
        Node("symbols", Linear(11), ("add",)),
    )
    return Graph((13,), nodes, head=NextSymbol())


def test_a_mixture_of_experts_by_hand() -> None:
    """At each of 13 positions a router of 8, 2 experts of 3 matrices of 24 · 40, and 11 symbols."""
    graph, d, chosen, hidden = mixture(), 24, 2, 2 * 40
    mac = d * 8 + chosen * 3 * d * 40 + d * 11
    # router: balance, differences, sum; experts: their sum, SiLU; residual; loss
    forward = Ops(
        mac=mac,
        add=(8 + 2 + 1) + (d + hidden) + d + 23,
        mul=chosen * d + hidden + hidden,  # shares, SiLU, product
        cmp=(7 + 6) + 10,
        exp=2 + hidden + 12,
        div=2 + hidden + 11,
    )
    input_grad = Ops(
        mac=mac,
        # router, shares and what three matrices of two experts and the router give to x, SiLU, fork, loss
        add=3 + chosen * (d - 1) + (1 + 3 + 1 - 1) * d + 2 * hidden + d + 11,
        mul=4 + 2 * chosen * d + 3 * hidden + 2 * hidden + 11,
    )
    evaluate = forward + Ops(add=-1, div=-11)
    assert graph.cost == Cost(forward * 13, input_grad * 13, Ops(mac=mac, add=d) * 13, evaluate * 13)
    assert by_torch(graph) == as_executed(graph)


@pytest.mark.parametrize("chosen", [2, 3])
def test_products_of_experts_that_an_mlp_became_are_those_that_torch_counts(chosen: int) -> None:
    """Gated ones in a network as Llama's, plain ones in a block that was added to it."""
    graph = llama_4x128((20,))
    graph = DeepenPlain("block4.add2", 4, 2, 32, 1e4, 96, Nonlinearity.GELU, 0).apply(graph)
    for node in ("block2.mlp.out", "block5.mlp.out"):
        graph = Upcycle(node, 5, chosen, 0).apply(graph)
    assert graph.rows["router"].num == graph.rows["experts"].num == 2
    assert by_torch(graph) == as_executed(graph)


X86 = platform.machine() in ("x86_64", "AMD64")
NETWORKS = {
    "one head": one_head(13),
    "one head, long": one_head(50),
    "mixture": mixture(),
    "gpt-4x128": gpt_4x128((20,)),
    "llama-4x128": llama_4x128((20,)),
}
CALL = re.compile(r"^MKL_VERBOSE ([A-Z]\w+)\((?:(\w),(\w),(\d+),(\d+),(\d+),)?")


@pytest.fixture(scope="module")
def multiplied(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Counter[str]]]:
    """By network and pass: calls by name, and the operations of single products as "operations"."""
    path = tmp_path_factory.mktemp("oracle") / "networks.json"
    path.write_text(json.dumps([graph_to_json(graph) for graph in NETWORKS.values()]))
    child = subprocess.run(
        [sys.executable, Path(__file__).with_name("multiplied.py"), path],
        env={**os.environ, "MKL_VERBOSE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=100,
    )
    found: dict[str, dict[str, Counter[str]]] = {
        name: {direction: Counter() for direction in PASSES} for name in NETWORKS
    }
    names = list(NETWORKS)
    for line in child.stdout.splitlines():
        if line.startswith(PASSES):
            direction, index = line.split()
            calls = found[names[int(index)]][direction]
        elif call := CALL.match(line):
            calls[call[1]] += 1
            if call[1] == "SGEMM":
                calls["operations"] += 2 * int(call[4]) * int(call[5]) * int(call[6])
    return found


@pytest.mark.skipif(not X86, reason="MKL is for x86; elsewhere torch's counter is the witness")
@pytest.mark.parametrize("name", [name for name in NETWORKS if name.startswith("one head")])
def test_products_are_those_that_mkl_made(multiplied: dict[str, dict[str, Counter[str]]], name: str) -> None:
    expected = as_executed(NETWORKS[name])
    for direction, times in (("forward", 1), ("backward", 2)):
        calls = multiplied[name][direction]
        assert calls["operations"] == expected["linear", direction] + expected["attention", direction]
        assert set(calls) == {"SGEMM", "operations"}
        assert calls["SGEMM"] == times * (7 + 2)


@pytest.mark.skipif(not X86, reason="MKL is for x86; elsewhere torch's counter is the witness")
def test_products_of_a_mixture_are_those_that_mkl_made(
    multiplied: dict[str, dict[str, Counter[str]]],
) -> None:
    """Of equal weights all positions choose the same two experts: six products beside router and symbols."""
    for direction, times in (("forward", 1), ("backward", 2)):
        calls = multiplied["mixture"][direction]
        assert calls["operations"] == as_executed(mixture())["linear", direction]
        assert calls["SGEMM"] == times * (2 + 6)


@pytest.mark.skipif(not X86, reason="MKL is for x86; elsewhere torch's counter is the witness")
@pytest.mark.parametrize("name", [name for name in NETWORKS if name in TEXT_SEEDS])
def test_linear_products_of_a_seed_are_those_that_mkl_made(
    multiplied: dict[str, dict[str, Counter[str]]], name: str
) -> None:
    """Attention of several heads is two calls for many products forward, and four backward."""
    graph = NETWORKS[name]
    for direction, times in (("forward", 1), ("backward", 2)):
        calls = multiplied[name][direction]
        assert calls["operations"] == as_executed(graph)["linear", direction]
        assert calls["SGEMM"] == times * graph.rows["linear"].num
        assert calls["SGEMM_BATCH"] == 2 * times * graph.rows["attention"].num
