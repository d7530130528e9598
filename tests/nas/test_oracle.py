"""The counter against what was really executed, by two witnesses that know nothing of our rules."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from nas.graph import Graph, Node
from nas.layers import Conv2d, Dense, DepthwiseConv2d, ShapeError
from nas.modules import Network
from nas.morphisms import MIX, MorphismError
from nas.ops import TENSOR_OPS
from nas.record import graph_to_json
from nas.seeds import residual, resnet18, resnet50
from tests.nas.graphs import graphs, grouped

LIMIT_SECONDS = 580.0  # for some seconds of work: a machine may be slow, and busy
pytestmark = pytest.mark.timeout(LIMIT_SECONDS + 20)


def grown(graph: Graph, seed: int, generations: int = 8) -> Graph:
    """A descendant by random morphisms."""
    rng = random.Random(seed)
    while generations:
        kind = rng.choices(list(MIX), list(MIX.values()))[0]
        try:
            graph = kind.propose(graph, rng).apply(graph)
        except (MorphismError, ShapeError):
            continue
        generations -= 1
    return graph


NETWORKS: dict[str, Callable[[], Graph]] = {
    "resnet50 v1.5": resnet50,
    "grouped": grouped,
    "child of residual": lambda: grown(residual(), 1),
    "child of resnet18": lambda: grown(resnet18((3, 32, 32), 100), 2),
    "child of grouped": lambda: grown(grouped(), 3),
}


# Without AVX-512, PyTorch gives oneDNN nothing in bf16; and nowhere does it give it dense layers in fp32.
FORMAT = "bf16" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "fp32"
PRIMITIVES = {Conv2d: "convolution", DepthwiseConv2d: "convolution"}
PRIMITIVES |= {Dense: "matmul"} if FORMAT == "bf16" else {}
ROWS = ["conv", "dense"] if FORMAT == "bf16" else ["conv"]


@dataclass
class Executed:
    """One training step: its graph, its images, and what oneDNN did, by primitive and by pass."""

    graph: Graph
    batch: int
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)

    def add(self, primitive: str, direction: str, operations: int) -> None:
        self.calls[primitive, direction] += 1
        self.operations[direction] += operations


def smallest_batch(graph: Graph) -> int:
    """From 4,097 products on PyTorch gives a dense layer to oneDNN. Beside it, a batch that is no
    layer's width tells by the shapes which gradient a product is."""
    nodes = [node for node in graph.nodes if isinstance(node.layer, Dense)]
    sizes = [(graph.reads(node)[0][0], node.layer.features) for node in nodes]
    widths = {width for pair in sizes for width in pair}
    least = 4096 // min(reads * writes for reads, writes in sizes) + 1
    return next(batch for batch in range(max(2, least), 10_000) if batch not in widths)


CONVOLUTION = re.compile(r"(?:g(\d+))?mb(\d+)_ic(\d+)oc(\d+)_ih\d+oh(\d+)kh(\d+)\w*_iw\d+ow(\d+)kw(\d+)\w*$")
PRODUCT = re.compile(r"(\d+)x(\d+):(\d+)x(\d+)$")


def convolution(problem: str) -> int:
    """Operations of "g8mb2_ic32oc32_ih24oh24kh3sh1dh0ph1_iw24ow24kw3sw1dw0pw1", whatever the pass."""
    groups, images, reads, writes, height, kernel_height, width, kernel_width = [
        int(part or 1) for part in CONVOLUTION.match(problem).groups()
    ]
    taps = reads // groups * kernel_height * kernel_width
    return 2 * images * writes * height * width * taps


def product(problem: str, forward: bool, batch: int) -> tuple[str, int]:
    """Pass and operations of "2x2048:2048x1000"; only the weights' gradient sums over the batch."""
    rows, inner, _, columns = map(int, PRODUCT.match(problem).groups())
    operations = 2 * rows * inner * columns
    if inner == batch:
        assert not forward
        return "backward_weights", operations
    assert rows == batch
    return "forward_training" if forward else "backward_data", operations


def read(record: str, steps: list[Executed]) -> None:
    """Fills `steps` from the child's output. oneDNN's first line names the fields of the others."""
    found = iter(steps)
    for line in record.splitlines():
        if line.startswith("forward "):
            step, forward = next(found), True
        elif line.startswith("backward "):
            forward = False
        elif line.startswith(("onednn_verbose,v1,primitive,exec", "onednn_verbose,primitive,exec")):
            fields = line.replace("verbose,v1,", "verbose,").split(",")  # torch 2.6 has no v1
            primitive, direction, problem = [fields[place] for place in (4, 6, -2)]
            if primitive == "convolution":
                step.add(primitive, direction, convolution(problem))
            elif primitive == PRIMITIVES.get(Dense):
                step.add(primitive, *product(problem, forward, step.batch))
            else:
                assert primitive in ("reorder", "matmul"), f"unheard of: {line}"


@pytest.fixture(scope="module")
def executed(tmp_path_factory) -> dict[str, Executed]:
    """One child for all networks: much of its time is the import of torch."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of PyTorch has no oneDNN, whose record is the witness")
    built = [build() for build in NETWORKS.values()]
    steps = [Executed(graph, smallest_batch(graph)) for graph in built]
    path = tmp_path_factory.mktemp("oracle") / "networks.json"
    path.write_text(json.dumps([(graph_to_json(step.graph), step.batch) for step in steps]))
    child = subprocess.run(
        [sys.executable, Path(__file__).with_name("executed.py"), path, FORMAT],
        env={**os.environ, "ONEDNN_VERBOSE": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LIMIT_SECONDS,
    )
    read(child.stdout, steps)
    return dict(zip(NETWORKS, steps))


def calls(graph: Graph) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for kind, primitive in PRIMITIVES.items():
        nodes = [node for node in graph.nodes if isinstance(node.layer, kind)]
        found[primitive, "forward_training"] += len(nodes)
        found[primitive, "backward_weights"] += len(nodes)
        found[primitive, "backward_data"] += sum(node.inputs[0] in graph.trained for node in nodes)
    return found


def operations(graph: Graph, batch: int) -> dict[str, int]:
    """As we count them, of the layers that oneDNN was given."""
    costs = [graph.rows[name].cost for name in ROWS]
    passes = {"forward_training": "forward", "backward_data": "input_grad", "backward_weights": "weight_grad"}
    return {
        direction: batch * sum(getattr(cost, ours).price(TENSOR_OPS) for cost in costs)
        for direction, ours in passes.items()
    }


@pytest.mark.parametrize("name", NETWORKS)
def test_counter_equals_what_onednn_executed(executed, name):
    step = executed[name]
    assert step.calls == calls(step.graph)
    assert step.operations == operations(step.graph, step.batch)


def test_calls_of_resnet50(executed):
    reference = json.loads((Path(__file__).parent / "counts.json").read_text())["nets"]["resnet50_v1.5"]
    counted = executed["resnet50 v1.5"].calls.items()
    found = {direction: num for (primitive, direction), num in counted if primitive == "convolution"}
    assert found == reference["onednn_calls"]


def by_torch(graph: Graph, batch: int = 2) -> tuple[int, int]:
    """Operations for one image as `FlopCounterMode` has them: forward, and both gradients."""
    with torch.device("meta"):
        network, images = Network(graph), torch.empty(batch, *graph.input)
        target = torch.empty(batch, dtype=torch.long)
    counter = FlopCounterMode(display=False)
    with counter:
        loss = F.cross_entropy(network(images), target)
        forward = counter.get_total_flops()
        loss.backward()
    return forward // batch, (counter.get_total_flops() - forward) // batch


def by_us(graph: Graph) -> tuple[int, int]:
    return graph.cost.forward.price(TENSOR_OPS), graph.cost.backward.price(TENSOR_OPS)


def test_counter_equals_torch_on_grown_children():
    # torch 2.13.0 multiplies the weight gradient of a grouped convolution by its groups, so none here.
    children = [grown(residual(), seed) for seed in range(4)]
    ungrouped = [graph for graph in children if not any(_groups(node) > 1 for node in graph.nodes)]
    assert len(ungrouped) >= 3
    for graph in ungrouped:
        assert by_us(graph) == by_torch(graph)


@given(graphs(groups=False))
@settings(max_examples=40)
def test_counter_equals_torch_on_any_graph(graph):
    assert by_us(graph) == by_torch(graph)


def _groups(node: Node) -> int:
    return node.layer.groups if isinstance(node.layer, Conv2d) else 1
