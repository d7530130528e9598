"""A program for test_oracle: one training step of each network of a file, told by oneDNN's and MKL's records.

Run with ONEDNN_VERBOSE=1 and MKL_VERBOSE=1: between the marks "forward <index>" and "backward <index>" on the
standard output stand the primitives that were executed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from nas.graph import Graph
from nas.head import NextSymbol
from nas.modules import Network
from nas.record import graph_from_json


def step(index: int, graph: Graph, batch: int, format: str) -> None:
    network = Network(graph)
    shapes = {**graph.weights, **graph.statistics}
    network.load({name: np.full(shape, 0.01, np.float32) for name, shape in shapes.items()})
    if isinstance(graph.head, NextSymbol):
        torch.set_num_threads(1)
        examples = torch.zeros(batch, *graph.input, dtype=torch.int64)
    else:
        # oneDNN's convolutions want two threads: with one, PyTorch takes its own for small images.
        torch.set_num_threads(2)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        examples = torch.randn(batch, *graph.input).contiguous(memory_format=torch.channels_last)
    print("forward", index, flush=True)
    with torch.autocast(
        "cpu", torch.bfloat16, enabled=format == "bf16" and not isinstance(graph.head, NextSymbol)
    ):
        logits = network.train()(examples).flatten(0, -2)
    loss = cross_entropy(logits.float(), torch.zeros(len(logits), dtype=torch.long))
    print("backward", index, flush=True)
    loss.backward()


if __name__ == "__main__":
    path, format = sys.argv[1:]
    with sdpa_kernel([SDPBackend.MATH]):
        for index, (graph, batch) in enumerate(json.loads(Path(path).read_text())):
            step(index, graph_from_json(graph), batch, format)
