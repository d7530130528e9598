"""Networks of random weights, examples for them, and what our own modules answer, in fp64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nas.graph import Graph
from nas.layers import ReLU
from nas.modules import Network

BATCH = 3


@dataclass(frozen=True)
class Unheard:
    """Behaves as a ReLU. Not a subclass of Layer: of these all are known to whoever reads a graph, in every
    test of this process."""

    def __getattr__(self, name):
        return getattr(ReLU(), name)


def random_weights(graph: Graph) -> dict[str, np.ndarray]:
    """fp32, of a size that keeps a deep network's numbers near 1."""
    rng = np.random.default_rng(0)
    weights = {
        name: (rng.normal(0, 1, shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype(np.float32)
        for name, shape in graph.weights.items()
    }
    statistics = {name: rng.uniform(0.5, 2, shape) for name, shape in graph.statistics.items()}
    return weights | {name: array.astype(np.float32) for name, array in statistics.items()}


def examples(graph: Graph) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    if graph.head.symbols_in:
        symbols = min(node.layer.symbols for node in graph.nodes if node.layer.reads_symbols)
        return torch.randint(symbols, (BATCH, *graph.input), generator=generator)
    return torch.randn(BATCH, *graph.input, generator=generator, dtype=torch.float64)


@torch.inference_mode()
def answers(graph: Graph) -> np.ndarray:
    network = Network(graph).double()
    network.load(random_weights(graph))
    return network.eval()(examples(graph)).numpy()
