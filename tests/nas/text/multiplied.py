"""A program for test_text_oracle: one training step of each network of a file, told by MKL's own record.

Run with MKL_VERBOSE=1: between the marks "forward <index>" and "backward <index>" on the standard output
stand the products that MKL made of one example.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from nas.graph import Graph
from nas.modules import Network
from nas.record import graph_from_json


def step(index: int, graph: Graph) -> None:
    network = Network(graph)
    shapes = {**graph.weights, **graph.statistics}
    network.load({name: np.full(shape, 0.01, np.float32) for name, shape in shapes.items()})
    symbols = torch.zeros(1, *graph.input, dtype=torch.int64)
    print("forward", index, flush=True)
    logits = network(symbols)
    print("backward", index, flush=True)
    F.cross_entropy(logits.flatten(0, 1), symbols.flatten()).backward()


if __name__ == "__main__":
    torch.set_num_threads(1)
    with sdpa_kernel([SDPBackend.MATH]):
        for index, graph in enumerate(json.loads(Path(sys.argv[1]).read_text())):
            step(index, graph_from_json(graph))
