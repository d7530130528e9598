"""The counter against what was really executed, by witnesses that know nothing of our rules."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings

from nas.graph import Graph
from nas.head import NextSymbol
from nas.layers import Add, Attention, Embedding, Experts, Linear, Product, RMSNorm, SiLU
from nas.morphisms.text import DeepenPlain, Nonlinearity, Upcycle
from nas.ops import TENSOR_OPS, Cost, Ops
from nas.products import all_pairs
from nas.seeds import residual, resnet18, resnet50
from nas.text_seeds import TEXT_SEEDS, gpt_4x128, llama_4x128
from tests.nas.graphs import Draft, graphs, grouped
from tests.nas.grown import grown, standard
from tests.nas.oracles import LIMIT_SECONDS, Executed, by_torch, by_us, calls, executed, operations
from tests.nas.text.samples import texts

pytestmark = pytest.mark.timeout(LIMIT_SECONDS + 20)


def one_head(positions: int) -> Graph:
    """Its attention is single products, whose sizes MKL records; of many at once it records none."""
    draft = Draft()
    draft.put("embedding", Embedding(11, 24))
    draft.put("norm", RMSNorm())
    draft.put("attention", Attention(1, 1), *[draft.put(name, Linear(16), "norm") for name in "qkv"])
    draft.put("out", Linear(24, bias=True))
    draft.put("add", Add(), "embedding", "out")
    draft.put("silu", SiLU(), draft.put("gate", Linear(40), "add"))
    draft.put("product", Product(), "silu", draft.put("in", Linear(40), "add"))
    draft.put("symbols", Linear(11))
    return draft.graph(positions, head=NextSymbol())


def mixture() -> Graph:
    draft = Draft()
    draft.put("embedding", Embedding(11, 24))
    draft.put("experts", Experts(8, 2, 40))
    draft.put("add", Add(), "embedding", "experts")
    draft.put("symbols", Linear(11))
    return draft.graph(13, head=NextSymbol())


def upcycled(chosen: int) -> Graph:
    """Gated experts in a network as Llama's, plain ones in a block that was added to it."""
    graph = DeepenPlain("block4.add2", 4, 2, 32, 1e4, 96, Nonlinearity.GELU, 0).apply(llama_4x128((20,)))
    for node in ("block2.mlp.out", "block5.mlp.out"):
        graph = Upcycle(node, 5, chosen, 0).apply(graph)
    assert graph.rows["router"].num == graph.rows["experts"].num == 2
    return graph


IMAGES: dict[str, Callable[[], Graph]] = {
    "resnet50 v1.5": lambda: resnet50((3, 64, 64), 1000),
    "grouped": grouped,
    "child of residual": lambda: grown(1, root=residual()),
    "child of resnet18": lambda: grown(2, root=resnet18((3, 32, 32), 100)),
    "child of grouped": lambda: grown(3, root=grouped()),
}
# Products of matrices forward, and calls for many products at once; backward there are twice as many.
TEXT: dict[str, tuple[Callable[[], Graph], int, int]] = {
    "one head": (lambda: one_head(13), 7 + 2, 0),
    "one head, long": (lambda: one_head(50), 7 + 2, 0),
    # Of equal weights all positions choose the same two experts: six products, router and symbols.
    "mixture": (mixture, 2 + 6, 0),
    "gpt-4x128": (lambda: gpt_4x128((20,)), 4 * 6 + 1, 2 * 4),
    "llama-4x128": (lambda: llama_4x128((20,)), 4 * 7 + 1, 2 * 4),
}


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Executed]:
    built = [build() for build in (*IMAGES.values(), *(build for build, _, _ in TEXT.values()))]
    return dict(zip([*IMAGES, *TEXT], executed(built, tmp_path_factory.mktemp("oracle"))))


@pytest.mark.parametrize("name", IMAGES)
def test_counter_equals_what_onednn_executed(steps: dict[str, Executed], name: str) -> None:
    step = steps[name]
    assert step.calls == calls(step.graph)
    assert step.operations == operations(step.graph, step.batch)


def test_calls_of_resnet50(steps: dict[str, Executed]) -> None:
    reference = json.loads((Path(__file__).parent / "counts.json").read_text())["nets"]["resnet50_v1.5"]
    counted = steps["resnet50 v1.5"].calls.items()
    found = {direction: num for (primitive, direction), num in counted if primitive == "convolution"}
    assert found == reference["onednn_calls"]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="MKL is for x86")
@pytest.mark.parametrize("name", TEXT)
def test_counter_equals_what_mkl_executed(steps: dict[str, Executed], name: str) -> None:
    """Attention of several heads is two calls for many products forward, and four backward."""
    _, products, batches = TEXT[name]
    step, ours, expected = steps[name], by_us(steps[name].graph), Counter[tuple[str, str]]()
    for direction, times in (("forward", 1), ("backward", 2)):
        expected += Counter(
            {("SGEMM", direction): times * products, ("SGEMM_BATCH", direction): times * batches}
        )
        attention = 0 if batches else ours["attention", direction]
        assert step.operations[direction] == ours["layers", direction] + attention
    assert step.calls == expected


@pytest.mark.contract
@pytest.mark.parametrize(
    "build",
    [
        grouped,
        *[lambda seed=seed: grown(seed, root=residual()) for seed in range(4)],
        *TEXT_SEEDS.values(),
        *[lambda chosen=chosen: upcycled(chosen) for chosen in (2, 3)],
        mixture,
        lambda: standard("gated", tied=True, window=2, head_norm=True),
    ],
)
def test_counter_equals_torch(build: Callable[[], Graph]) -> None:
    graph = build()
    counted = by_torch(graph)
    assert by_us(graph) == counted
    pairs = all_pairs(graph)
    assert pairs is None or pairs.train.price(TENSOR_OPS) == sum(counted.values())


@given(graphs() | texts())
@settings(max_examples=30, deadline=None)
def test_counter_equals_torch_on_any_graph(graph: Graph) -> None:
    assert by_us(graph) == by_torch(graph)


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
