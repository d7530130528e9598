"""Where a graph can be edited, and the edits that most morphisms share."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import TypeVar

from nas.graph import INPUT, Graph, Node
from nas.layers import (
    Add,
    AveragePool,
    Concat,
    Conv2d,
    Dense,
    Dropout,
    Flatten,
    Gate,
    GlobalPool,
    Layer,
    MaxPool,
    ReLU,
)
from nas.morphisms.channels import MorphismError

__all__ = [
    "Tie",
    "choose",
    "images",
    "inserted",
    "known",
    "live",
    "non_negative",
    "replaced",
    "rounded",
    "seed_from",
    "ties",
    "unused",
]

T = TypeVar("T")


def choose(rng: random.Random, sites: Sequence[T], what: str) -> T:
    if not sites:
        raise MorphismError(f"the graph has no {what}")
    return rng.choice(sites)


def seed_from(rng: random.Random) -> int:
    return rng.randrange(1 << 31)


def known(graph: Graph, name: str) -> Node:
    if name not in graph.node:
        raise MorphismError(f"the graph has no node {name!r}")
    return graph.node[name]


def replaced(graph: Graph, layers: dict[str, Layer]) -> Graph:
    """The graph with other layers at some nodes."""
    nodes = [replace(node, layer=layers[node.name]) if node.name in layers else node for node in graph.nodes]
    return Graph(graph.input, tuple(nodes))


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
    return Graph(graph.input, tuple(nodes))


def unused(graph: Graph, word: str) -> str:
    """`word` with the first number above all that follow it in the graph's names."""
    numbers = [int(found[1]) for name in graph.node if (found := re.match(rf"{word}(\d+)\.", name))]
    return f"{word}{max(numbers, default=0) + 1}"


def images(graph: Graph) -> list[str]:
    """The tensors with an area, except the input."""
    return [node.name for node in graph.nodes if len(graph.shapes[node.name]) == 3]


def non_negative(graph: Graph) -> set[str]:
    """The tensors that are nowhere below zero, whatever the weights: those that a ReLU leaves as they are."""
    found: set[str] = set()
    for node in graph.nodes:
        layer = node.layer
        if isinstance(layer, ReLU):
            found.add(node.name)
        elif isinstance(layer, (MaxPool, AveragePool, GlobalPool, Dropout, Flatten, Add, Concat)):
            if found.issuperset(node.inputs):
                found.add(node.name)
        elif isinstance(layer, Gate) and node.inputs[0] in found:
            found.add(node.name)
    return found


def live(kernel: int, stride: int, area: Sequence[int]) -> bool:
    """Whether each tap of a kernel meets the image somewhere, and not padding only."""
    reach = (kernel - 1) // 2
    return all((side - 1) // stride * stride >= reach for side in area)


def rounded(width: float, multiple: int = 1) -> int:
    """To a multiple of 8 (of 4 below 8) that `multiple` divides, as matrix units like it; at least one."""
    step = lcm(8 if width >= 8 else 4, multiple)
    return max(1, round(width / step)) * step


@dataclass(frozen=True)
class Tie:
    """The convolutions or dense layers whose output channels must be widened together."""

    producers: tuple[str, ...]
    width: int
    groups: int
    """The number of runs of channels that grouped convolutions keep apart on either side."""
    dropout: bool
    """Whether a dropout reads them before another layer mixes them."""


def ties(graph: Graph) -> list[Tie]:
    """Every set of producers whose width is free: not that of the image or of the classes."""
    root = {name: name for name in graph.shapes}

    def find(name: str) -> str:
        while root[name] != name:
            root[name] = name = root[root[name]]
        return name

    for node in graph.nodes:
        if isinstance(node.layer, (Conv2d, Dense, Concat)):
            continue
        first = find(node.inputs[0])
        for name in (node.name, *node.inputs[1:]):
            root[find(name)] = first
    stuck = {find(INPUT), find(graph.output)}
    dropped = {find(node.name) for node in graph.nodes if isinstance(node.layer, Dropout)}
    groups: dict[str, int] = {}
    producers: dict[str, list[str]] = {}
    sums: dict[str, int] = {}
    for node in graph.nodes:
        own = find(node.name)
        if isinstance(node.layer, Concat):
            sums[own] = sums.get(own, 0) + 1
        elif isinstance(node.layer, (Conv2d, Dense)):
            producers.setdefault(own, []).append(node.name)
            if isinstance(node.layer, Conv2d) and node.layer.groups > 1:
                for tied in (own, find(node.inputs[0])):
                    groups[tied] = lcm(groups.get(tied, 1), node.layer.groups)
    # The width of a concatenation is a sum. What ties it to another width, or to groups, fixes its parts.
    stuck.update(tied for tied, num in sums.items() if num > 1 or tied in producers or tied in groups)
    for node in reversed(graph.nodes):
        if isinstance(node.layer, Concat):
            parts = {find(name) for name in node.inputs}
            stuck |= parts if find(node.name) in stuck else set()
            dropped |= parts if find(node.name) in dropped else set()
    return [
        Tie(tuple(names), graph.shapes[names[0]][0], groups.get(tied, 1), tied in dropped)
        for tied, names in producers.items()
        if tied not in stuck
    ]
