"""Shortcuts from an earlier tensor: added, or appended to the channels."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nas.graph import Graph, Node
from nas.layers import Add, BatchNorm, Concat, Conv2d, Shape
from nas.morphisms.carry import Edit
from nas.morphisms.channels import NEW, Channels, MorphismError
from nas.morphisms.morphism import Morphism
from nas.morphisms.sites import images, inserted, known, non_negative_images, seed_from, unused
from nas.morphisms.ties import unmixed


@dataclass(frozen=True)
class Skip(Morphism):
    """Adds to `node` a 1×1 convolution and batch norm of an earlier tensor, with γ = 0 at first.

    Its stride is the one that takes the one area to the other.
    """

    source: str
    node: str
    seed: int

    def edit(self, graph: Graph) -> Edit:
        _earlier(graph, self.source, self.node)
        width, *area = graph.shapes[self.node]
        stride = _stride(graph.shapes[self.source][1:], area)
        if not stride:
            raise MorphismError(f"no stride takes {self.source} to the area of {self.node}")
        skip = unused(graph, "skip")
        nodes = [
            Node(f"{skip}.conv", Conv2d(width, 1, stride), (self.source,)),
            Node(f"{skip}.bn", BatchNorm(), (f"{skip}.conv",)),
            Node(f"{skip}.add", Add(), (self.node, f"{skip}.bn")),
        ]
        return Edit(inserted(graph, self.node, nodes), constants={f"{skip}.bn.weight": 0.0}, seed=self.seed)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> Skip:
        """To what a ReLU will read, from what a ReLU gave, over at most one halving of the area."""
        sites = [name for name in images(graph) if isinstance(graph.node[name].layer, (BatchNorm, Add))]
        pair = _pair(graph, rng, sites, lambda area, wanted: _stride(area, wanted) in (1, 2))
        if pair is None:
            raise MorphismError("the graph has no two places for a shortcut")
        return cls(*pair, seed_from(rng))


@dataclass(frozen=True)
class ConcatSkip(Morphism):
    """Appends to the channels of `node` those of an earlier tensor, read with zeros at first."""

    source: str
    node: str
    seed: int

    def edit(self, graph: Graph) -> Edit:
        _earlier(graph, self.source, self.node)
        if self.node not in unmixed(graph):
            raise MorphismError(f"the width of {self.node} is tied to others")
        name = f"{unused(graph, 'concat')}.concat"
        child = inserted(graph, self.node, [Node(name, Concat(), (self.node, self.source))])
        own, more = graph.shapes[self.node][0], graph.shapes[self.source][0]

        def joined() -> dict[str, Channels]:
            source = np.concatenate([np.arange(own), np.full(more, NEW)])
            return {name: Channels(source, np.repeat([1.0, 0.0], [own, more]))}

        return Edit(child, joined, seed=self.seed)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> ConcatSkip:
        free = unmixed(graph)
        sites = [name for name in non_negative_images(graph) if name in free]
        pair = _pair(graph, rng, sites, lambda area, wanted: area == wanted)
        if pair is None:
            raise MorphismError("the graph has no two tensors of one area to concatenate")
        return cls(*pair, seed_from(rng))


Fits = Callable[[Shape, Shape], bool]
"""Whether a tensor of the first area can be the source of a shortcut to one of the second."""


def _pair(graph: Graph, rng: random.Random, sites: list[str], fits: Fits) -> tuple[str, str] | None:
    """A source that no ReLU changes, and one of the sites below it, both drawn."""
    rng.shuffle(sites)
    sources = non_negative_images(graph)
    for node in sites:
        area = graph.shapes[node][1:]
        above = [name for name in _above(graph, node, sources) if fits(graph.shapes[name][1:], area)]
        if above:
            return rng.choice(above), node
    return None


def _above(graph: Graph, node: str, names: Sequence[str]) -> list[str]:
    """The ones of `names` that come before `node` in the graph, in the order of `names`."""
    place = {name: index for index, name in enumerate(graph.shapes)}
    return [name for name in names if place[name] < place[node]]


def _earlier(graph: Graph, source: str, node: str) -> None:
    """Raises MorphismError unless both are images and the source comes first, so that there is no cycle."""
    known(graph, node)
    if source not in graph.shapes or not _above(graph, node, [source]):
        raise MorphismError(f"{source!r} is not above {node}")
    if len(graph.shapes[source]) != 3 or len(graph.shapes[node]) != 3:
        raise MorphismError(f"{source} and {node} are not both images")


def _stride(area: Sequence[int], wanted: Sequence[int]) -> int:
    """The smallest stride with which a 1×1 convolution takes one area to the other; 0: none does."""
    # A side of s pixels becomes one of at most w from the stride ⌊(s − 1)/w⌋ + 1 on, and larger strides only
    # make it smaller.
    stride = max((side - 1) // least + 1 for side, least in zip(area, wanted))
    return stride if [(side - 1) // stride + 1 for side in area] == list(wanted) else 0
