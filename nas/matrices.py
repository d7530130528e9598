"""The matrices between what a network reads and its answers: those that an optimizer may treat as such."""

from __future__ import annotations

from collections.abc import Mapping

from nas.graph import Graph
from nas.layers import Conv2d, Dense, Experts, Linear, Shape


def hidden_matrices(graph: Graph) -> Mapping[str, Shape]:
    """Shapes by "node.tensor". Embeddings and grouped or depthwise convolutions are none, nor is the layer
    that puts out the logits, nor the router of experts, whose rows are scores."""
    return {
        f"{node.name}.{tensor}": shape
        for node in graph.nodes
        if node.name != graph.output and isinstance(node.layer, (Linear, Dense, Conv2d, Experts))
        for tensor, shape in node.layer.weights(*graph.reads(node)).items()
        if len(shape) > 1 and tensor != "router" and node.layer.groups == 1
    }
