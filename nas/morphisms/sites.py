"""Where a graph can be edited, and the edits that most morphisms share."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from math import ceil, lcm
from typing import TypeVar

from nas.graph import Graph, Node, once
from nas.layers import Layer, Windowed
from nas.morphisms.channels import MorphismError

T = TypeVar("T")


def choose(rng: random.Random, sites: Sequence[T], what: str) -> T:
    """One of the places, drawn. Raises MorphismError if there is none."""
    if not sites:
        raise MorphismError(f"the graph has no {what}")
    return rng.choice(sites)


def possible(graph: Graph, check: Callable[[Graph, str], object]) -> list[str]:
    """The nodes for which `check` raises no MorphismError."""
    found = []
    for node in graph.nodes:
        try:
            check(graph, node.name)
        except MorphismError:
            continue
        found.append(node.name)
    return found


def seed_from(rng: random.Random) -> int:
    """A seed for new weights, of 31 bits: every reader of JSON takes it as a whole number."""
    return rng.randrange(1 << 31)


def known(graph: Graph, name: str) -> Node:
    """The node of that name. Raises MorphismError: a morphism may come from a record of another graph."""
    if name not in graph.node:
        raise MorphismError(f"the graph has no node {name!r}")
    return graph.node[name]


def replaced(graph: Graph, layers: dict[str, Layer]) -> Graph:
    """The graph with other layers at some nodes."""
    nodes = [
        Node(node.name, layers[node.name], node.inputs) if node.name in layers else node
        for node in graph.nodes
    ]
    return Graph(graph.input, tuple(nodes), graph, head=graph.head)


def inserted(graph: Graph, after: str, new: Sequence[Node]) -> Graph:
    """The graph with `new` nodes behind one of its own, whose readers all read the last of them instead."""
    known(graph, after)
    stand_in = new[-1].name
    nodes: list[Node] = []
    for node in graph.nodes:
        if after in node.inputs:
            node = Node(
                node.name, node.layer, tuple(stand_in if name == after else name for name in node.inputs)
            )
        nodes.append(node)
        if node.name == after:
            nodes += new
    return Graph(graph.input, tuple(nodes), graph, head=graph.head)


def unused(graph: Graph, word: str) -> str:
    """`word` with the first number above all that follow it in the graph's names."""
    numbered = re.compile(rf"{word}(\d+)\.")
    names = [name for name in graph.node if name.startswith(word)]
    numbers = [int(found[1]) for name in names if (found := numbered.match(name))]
    return f"{word}{max(numbers, default=0) + 1}"


@once
def images(graph: Graph) -> list[str]:
    """The tensors with an area, except the input."""
    return [node.name for node in graph.nodes if len(graph.shapes[node.name]) == 3]


@once
def non_negative(graph: Graph) -> set[str]:
    """The tensors that are nowhere below zero, whatever the weights: those that a ReLU leaves as they are."""
    found: set[str] = set()
    for node in graph.nodes:
        if node.layer.is_non_negative(*[name in found for name in node.inputs]):
            found.add(node.name)
    return found


@once
def non_negative_images(graph: Graph) -> list[str]:
    """The images that cannot be negative, in the graph's order."""
    possible = non_negative(graph)
    return [name for name in images(graph) if name in possible]


def live(layer: Windowed, area: Sequence[int]) -> bool:
    """Whether each tap of a kernel meets the image somewhere, and not padding only. A tap that never does
    would have no gradient, and never learn."""
    return all(along.all_taps_see for along in layer.windows(area))


def rounded(width: float, multiple: int = 1) -> int:
    """The width, rounded up to a multiple of 8 (of 4 below 8), which suits matrix units, and of
    `multiple`."""
    step = lcm(8 if width >= 8 else 4, multiple)
    return ceil(width / step) * step
