"""What was really executed, by witnesses that know nothing of our rules: oneDNN, MKL and torch's counter.

None sees the causal triangle: all have T² pairs, which are 2T/(T + 1) times those that we count. The triangle
itself is held by loops over pairs, in test_loops.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from nas.graph import Graph
from nas.head import NextSymbol
from nas.layers import Attention, Conv2d, Dense, DepthwiseConv2d, Layer
from nas.modules import Network
from nas.ops import TENSOR_OPS
from nas.record import graph_to_json
from tests.house.tree import ROOT

LIMIT_SECONDS = 580.0  # for some seconds of work: a machine may be slow, and busy

# Without AVX-512, PyTorch gives oneDNN nothing in bf16; and nowhere does it give it dense layers in fp32.
FORMAT = "bf16" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "fp32"
PRIMITIVES: dict[type[Layer], str] = {Conv2d: "convolution", DepthwiseConv2d: "convolution"}
PRIMITIVES |= {Dense: "matmul"} if FORMAT == "bf16" else {}
ROWS = ["conv", "dense"] if FORMAT == "bf16" else ["conv"]


@dataclass
class Executed:
    """One training step: its graph, its examples, and what oneDNN or MKL did, by primitive and by pass."""

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
    layers = [(graph.reads(node)[0][0], node.layer) for node in graph.nodes]
    sizes = [(width, layer.features) for width, layer in layers if isinstance(layer, Dense)]
    if not sizes:
        return 1  # of text: MKL tells single products only
    widths = {width for pair in sizes for width in pair}
    least = 4096 // min([reads * writes for reads, writes in sizes], default=4096) + 1
    return next(batch for batch in range(max(2, least), 10_000) if batch not in widths)


CONVOLUTION = re.compile(r"(?:g(\d+))?mb(\d+)_ic(\d+)oc(\d+)_ih\d+oh(\d+)kh(\d+)\w*_iw\d+ow(\d+)kw(\d+)\w*$")
PRODUCT = re.compile(r"(\d+)x(\d+):(\d+)x(\d+)$")
OF_MKL = re.compile(r"MKL_VERBOSE ([A-Z]\w+)\((?:\w,\w,(\d+),(\d+),(\d+),)?")


def convolution(problem: str) -> int:
    """Operations of "g8mb2_ic32oc32_ih24oh24kh3sh1dh0ph1_iw24ow24kw3sw1dw0pw1", whatever the pass."""
    groups, images, reads, writes, height, kernel_height, width, kernel_width = [
        int(part or 1)
        for part in CONVOLUTION.match(problem).groups()  # type: ignore[union-attr]
    ]
    taps = reads // groups * kernel_height * kernel_width
    return 2 * images * writes * height * width * taps


def product(problem: str, forward: bool, batch: int) -> tuple[str, int]:
    """Pass and operations of "2x2048:2048x1000"; only the weights' gradient sums over the batch."""
    rows, inner, _, columns = map(int, PRODUCT.match(problem).groups())  # type: ignore[union-attr]
    operations = 2 * rows * inner * columns
    if inner == batch:
        assert not forward
        return "backward_weights", operations
    assert rows == batch
    return "forward_training" if forward else "backward_data", operations


def read(record: str, steps: list[Executed]) -> None:
    """Fills `steps` from the child's output. oneDNN's first line names the fields of the others."""
    step, direction = steps[0], ""
    for line in record.splitlines():
        if line.startswith(("forward ", "backward ")):
            direction, index = line.split()
            step = steps[int(index)]
        elif isinstance(step.graph.head, NextSymbol):
            if call := OF_MKL.match(line):
                name, *sizes = call.groups()
                step.add(name, direction, 2 * prod(map(int, sizes)) if name == "SGEMM" else 0)
        elif line.startswith(("onednn_verbose,v1,primitive,exec", "onednn_verbose,primitive,exec")):
            fields = line.replace("verbose,v1,", "verbose,").split(",")  # torch 2.6 has no v1
            primitive, kind, problem = [fields[place] for place in (4, 6, -2)]
            if primitive == "convolution":
                step.add(primitive, kind, convolution(problem))
            elif primitive == PRIMITIVES.get(Dense):
                step.add(primitive, *product(problem, direction == "forward", step.batch))
            else:
                assert primitive in ("reorder", "matmul"), f"unheard of: {line}"


def executed(graphs: Sequence[Graph], folder: Path) -> list[Executed]:
    """A training step of each in one child for all: much of its time is the import of torch."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of PyTorch has no oneDNN, whose record is the witness")
    steps = [Executed(graph, smallest_batch(graph)) for graph in graphs]
    path = folder / "networks.json"
    path.write_text(json.dumps([(graph_to_json(step.graph), step.batch) for step in steps]))
    # A waiting thread that spins would take the processor from the one that it waits for.
    verbose = {"ONEDNN_VERBOSE": "1", "MKL_VERBOSE": "1", "OMP_WAIT_POLICY": "passive"}
    child = subprocess.run(
        [sys.executable, Path(__file__).with_name("executed.py"), path, FORMAT],
        env={**os.environ, **verbose, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LIMIT_SECONDS,
    )
    read(child.stdout, steps)
    return steps


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
    costs = [graph.rows[name].cost for name in ROWS if name in graph.rows]
    passes = {"forward_training": "forward", "backward_data": "input_grad", "backward_weights": "weight_grad"}
    return {
        direction: batch * sum(getattr(cost, ours).price(TENSOR_OPS) for cost in costs)
        for direction, ours in passes.items()
    }


def gradients_of_a_convolution(grad: Any, reads: Any, weight: Any, *rest: Any, out_shape: Any = None) -> int:
    """Each gradient that is wanted has the products of the forward pass: of every element out, those with one
    kernel of its group. torch 2.13 multiplies the weights' by the number of groups."""
    wanted = rest[-1]
    return int(2 * sum(wanted[:2]) * prod(grad) * prod(weight[1:]))


def by_torch(graph: Graph, batch: int = 2) -> Counter[tuple[str, str]]:
    """Operations for one example as `FlopCounterMode` has them, by pass: products of batches are those of
    attention, all others of layers."""
    with torch.device("meta"):
        kind = torch.int64 if isinstance(graph.head, NextSymbol) else torch.float32
        network, examples = Network(graph), torch.zeros(batch, *graph.input, dtype=kind)
        right = torch.zeros(
            batch * (graph.input[0] if isinstance(graph.head, NextSymbol) else 1), dtype=torch.int64
        )
    formulas = {torch.ops.aten.convolution_backward: gradients_of_a_convolution}
    counter = FlopCounterMode(display=False, custom_mapping=formulas)
    with sdpa_kernel([SDPBackend.MATH]), counter:
        loss = F.cross_entropy(network(examples).flatten(0, -2), right)
        forward = dict(counter.get_flop_counts()["Global"])
        loss.backward()
    found: Counter[tuple[str, str]] = Counter()
    for operator, number in counter.get_flop_counts()["Global"].items():
        kind_of = "attention" if operator is torch.ops.aten.bmm else "layers"
        found[kind_of, "forward"] += forward.get(operator, 0)
        found[kind_of, "backward"] += number - forward.get(operator, 0)
    assert all(number % batch == 0 for number in found.values())
    return Counter({what: number // batch for what, number in found.items()})


def by_us(graph: Graph) -> Counter[tuple[str, str]]:
    """As `by_torch`, with T² pairs."""
    found: Counter[tuple[str, str]] = Counter()
    for name, row in graph.rows.items():
        if name != "attention":
            for direction in ("forward", "backward"):
                found["layers", direction] += getattr(row.cost, direction).price(TENSOR_OPS)
    for node in graph.nodes:
        if isinstance(node.layer, Attention):
            positions, counted = graph.input[0], node.layer.costs(*graph.reads(node))["attention"]
            pairs = sum(min(place + 1, node.layer.window or positions) for place in range(positions))
            for direction in ("forward", "backward"):
                price = getattr(counted, direction).price(TENSOR_OPS)
                found["attention", direction] += price * Fraction(positions**2, pairs)
    return found
