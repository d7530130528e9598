"""Networks that compute: random weights, examples for them, and a loss, for images as for text."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from nas.graph import Graph
from nas.head import NextSymbol
from nas.layers import Embedding
from nas.modules import Network
from nas.weights import Array


def random_weights(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Weights and statistics of a size that keeps a deep network's numbers near 1."""
    rng = np.random.default_rng(seed)
    drawn = {name: rng.normal(0, np.prod(shape[1:]) ** -0.5, shape) for name, shape in graph.weights.items()}
    drawn |= {name: rng.uniform(0.5, 2, shape) for name, shape in graph.statistics.items()}
    return {name: array.astype(np.float32) for name, array in drawn.items()}


def network(graph: Graph, kind: torch.dtype = torch.float32) -> Network:
    found = Network(graph).to(kind)
    found.load(random_weights(graph))
    return found


def examples(graph: Graph, num: int = 3, kind: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    if isinstance(graph.head, NextSymbol):
        symbols = min(node.layer.symbols for node in graph.nodes if isinstance(node.layer, Embedding))
        return torch.randint(symbols, (num, *graph.input), generator=generator)
    return torch.randn(num, *graph.input, generator=generator, dtype=torch.float64).to(kind)


def loss(logits: Tensor) -> Tensor:
    """Whatever is right, all classes are."""
    rows = logits.flatten(0, -2)
    return cross_entropy(rows, torch.arange(len(rows)) % rows.shape[1])
