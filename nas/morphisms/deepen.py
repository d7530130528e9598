"""More depth: residual blocks whose last batch norm starts with γ = 0, so that they add nothing at first.

γ = 0: Goyal et al., "Accurate, Large Minibatch SGD", 2017. An identity convolution with a fresh batch
norm (Net2DeeperNet) keeps the function in validation only.
"""

from __future__ import annotations

import random

from nas.frozen import frozen
from nas.graph import Graph, Node
from nas.layers import Add, BatchNorm, Conv2d, ReLU
from nas.morphisms.carry import Edit
from nas.morphisms.channels import MorphismError
from nas.morphisms.morphism import Morphism
from nas.morphisms.sites import (
    choose,
    inserted,
    known,
    live,
    non_negative,
    non_negative_images,
    rounded,
    seed_from,
    unused,
)

WIDEST_BASIC = 512  # channels; the widest of ResNet-18 and 34


@frozen
class DeepenBasic(Morphism):
    """Puts a block of two convolutions behind `node`."""

    node: str
    channels: int
    """Number of channels between the two convolutions."""
    seed: int
    kernel: int = 3

    def edit(self, graph: Graph) -> Edit:
        width = _width(graph, self.node)
        return _edit(
            graph, self.node, [Conv2d(self.channels, self.kernel), Conv2d(width, self.kernel)], self.seed
        )

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> DeepenBasic:
        sites = [name for name in non_negative_images(graph) if graph.shapes[name][0] <= WIDEST_BASIC]
        node = choose(rng, sites, f"place for a basic block of at most {WIDEST_BASIC} channels")
        channels, *area = graph.shapes[node]
        return cls(node, rounded(channels), seed_from(rng), 3 if live(Conv2d(1, 3), area) else 1)


@frozen
class DeepenBottleneck(Morphism):
    """Puts a block of a 1×1, a (grouped) k×k and a 1×1 convolution behind `node`."""

    node: str
    channels: int
    """Inside the block."""
    seed: int
    kernel: int = 3
    groups: int = 1

    def edit(self, graph: Graph) -> Edit:
        inner = Conv2d(self.channels, self.kernel, groups=self.groups)
        width = _width(graph, self.node)
        return _edit(graph, self.node, [Conv2d(self.channels, 1), inner, Conv2d(width, 1)], self.seed)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> DeepenBottleneck:
        node = choose(rng, non_negative_images(graph), "place for a block")
        width, *area = graph.shapes[node]
        kernel = 3 if live(Conv2d(1, 3), area) else 1
        # He et al., CVPR 2016: a quarter inside. Xie et al. (ResNeXt), CVPR 2017: half inside, in groups.
        # Groups have 8 channels, so below a width of 32 there would be a single one.
        if width >= 32 and rng.random() < 1 / 3:
            channels = rounded(width / 2)
            return cls(node, channels, seed_from(rng), kernel, groups=channels // 8)
        return cls(node, rounded(max(width / 4, min(width, 8))), seed_from(rng), kernel)


def _width(graph: Graph, name: str) -> int:
    """The channels of the image behind which a block is put. Raises MorphismError for what a block cannot
    follow."""
    known(graph, name)
    shape = graph.shapes[name]
    if len(shape) != 3:
        raise MorphismError(f"{name} has the shape {shape}; a block reads an image")
    if name not in non_negative(graph):
        raise MorphismError(f"{name} may be negative, and the block ends in a ReLU")
    return shape[0]


def _edit(graph: Graph, after: str, convolutions: list[Conv2d], seed: int) -> Edit:
    """A block of these convolutions, each with its batch norm, and a ReLU behind all but the last; its sum
    with what it reads ends in a ReLU."""
    block, last, nodes = unused(graph, "block"), after, []
    area = graph.shapes[after][1:]
    for number, convolution in enumerate(convolutions, start=1):
        if not live(convolution, area):
            raise MorphismError(f"{after} is {area}; a kernel of {convolution.kernel} would see padding only")
        part = f"{block}.{number}"
        nodes += [
            Node(f"{part}.conv", convolution, (last,)),
            Node(f"{part}.bn", BatchNorm(), (f"{part}.conv",)),
        ]
        last = f"{part}.bn"
        if number < len(convolutions):
            nodes.append(Node(f"{part}.relu", ReLU(), (last,)))
            last = f"{part}.relu"
    nodes.append(Node(f"{block}.add", Add(), (last, after)))
    nodes.append(Node(f"{block}.relu", ReLU(), (f"{block}.add",)))
    return Edit(inserted(graph, after, nodes), constants={f"{last}.weight": 0.0}, seed=seed)
