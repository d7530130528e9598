"""Memory traffic of a network for one training example, if no layer leaves anything in a cache for the
next."""

from __future__ import annotations

from math import prod

from nas.graph import Graph, Node


def moved_elements(graph: Graph, node: Node) -> int:
    """Elements of activations and gradients that one node reads and writes. Forward, the inputs are read and
    the output is written. Backward, the output's gradient and the inputs are read, and the inputs' gradients
    are written, as far as they are needed."""
    read, written = sum(map(prod, graph.reads(node))), prod(graph.shapes[node.name])
    trained, reached = node.name in graph.trained, not graph.trained.isdisjoint(node.inputs)
    return read + written + (written + read if trained else 0) + (read if reached else 0)


def all_moved_elements(graph: Graph) -> int:
    return sum(moved_elements(graph, node) for node in graph.nodes)
