"""Branches beside what is there: a shortcut, a second branch, and squeeze-excite, a gate on each channel."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from nas.frozen import frozen
from nas.graph import Graph, Node
from nas.layers import Add, BatchNorm, Concat, Conv2d, Dense, Gate, GlobalPool, ReLU, Shape
from nas.morphisms.carry import Edit, Twin
from nas.morphisms.channels import NEW, Channels, MorphismError
from nas.morphisms.morphism import Morphism
from nas.morphisms.sites import (
    choose,
    images,
    inserted,
    known,
    non_negative,
    non_negative_images,
    rounded,
    seed_from,
    unused,
)
from nas.morphisms.ties import unmixed


@frozen
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


@frozen
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
    rng.shuffle(sites)  # the first that has a source is then as good as any drawn at random
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


@frozen
class BranchSplit(Morphism):
    """Doubles a convolution with its batch norm `node`; the two add up, by a share of γ and β each.

    Cai et al., "Path-Level Network Transformation", ICML 2018, but unevenly, so that they part.
    """

    node: str
    share: float
    """Share of γ and β that the first branch keeps, at least one half."""

    def edit(self, graph: Graph) -> Edit:
        convolution = _branch(graph, self.node)
        if convolution is None:
            raise MorphismError(f"{self.node} is no batch norm that alone reads a convolution")
        if not 0.5 <= self.share < 1:
            raise MorphismError(f"a share of {self.share}; it is at least 0.5 and below 1")
        split, rest = unused(graph, "split"), 1 - self.share
        nodes = [
            Node(f"{split}.conv", convolution.layer, convolution.inputs),
            Node(f"{split}.bn", BatchNorm(), (f"{split}.conv",)),
            Node(f"{split}.add", Add(), (self.node, f"{split}.bn")),
        ]
        # A convolution's gradient comes through the γ behind it, of which each branch has its share; that of
        # γ itself depends on what is normalised, which is the same in both.
        twins = {
            convolution.name: Twin(convolution.name, gradient=self.share),
            self.node: Twin(self.node, share=self.share),
            f"{split}.conv": Twin(convolution.name, gradient=rest),
            f"{split}.bn": Twin(self.node, share=rest),
        }
        return Edit(inserted(graph, self.node, nodes), twins=twins)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> BranchSplit:
        sites = [node.name for node in graph.nodes if _branch(graph, node.name)]
        # As the shares of copied channels: from 5/8 to 7/8, in 256ths (`_copied` in widen.py).
        return cls(
            choose(rng, sites, "batch norm that alone reads a convolution"), rng.randint(160, 224) / 256
        )


def _branch(graph: Graph, name: str) -> Node | None:
    """The convolution that only the batch norm `name` reads."""
    node = known(graph, name)
    read = graph.node.get(node.inputs[0])
    if not isinstance(node.layer, BatchNorm) or read is None or len(graph.readers[read.name]) > 1:
        return None
    return read if read.layer.convolution(*graph.reads(read)) else None


@frozen
class SqueezeExcite(Morphism):
    """Puts a squeeze-excite behind `node`: 2·sigmoid(0), so that it multiplies by 1 at first.

    `node` must not be negative, nor are the first weights of the squeeze: then its ReLU passes every
    feature, and the gate's weights have a gradient.
    """

    node: str
    features: int
    """Number of features between the two dense layers."""
    seed: int

    def edit(self, graph: Graph) -> Edit:
        known(graph, self.node)
        shape = graph.shapes[self.node]
        if len(shape) != 3 or self.node not in non_negative(graph):
            raise MorphismError(f"{self.node} is not an image that cannot be negative")
        gate = unused(graph, "gate")
        squeeze, excite = f"{gate}.squeeze", f"{gate}.excite"
        nodes = [
            Node(f"{gate}.pool", GlobalPool(), (self.node,)),
            Node(squeeze, Dense(self.features), (f"{gate}.pool",)),
            Node(f"{gate}.relu", ReLU(), (squeeze,)),
            Node(excite, Dense(shape[0]), (f"{gate}.relu",)),
            Node(f"{gate}.gate", Gate(), (self.node, excite)),
        ]
        return Edit(
            inserted(graph, self.node, nodes),
            constants={f"{excite}.weight": 0.0, f"{excite}.bias": 0.0},
            magnitudes=frozenset({f"{squeeze}.weight", f"{squeeze}.bias"}),
            seed=self.seed,
        )

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> SqueezeExcite:
        node = choose(rng, non_negative_images(graph), "activation to gate")
        width = graph.shapes[node][0]
        # A sixteenth: Hu et al., CVPR 2018.
        return cls(node, rounded(max(width / 16, min(width, 8))), seed_from(rng))
