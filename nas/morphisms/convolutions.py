"""Larger kernels and fewer groups: zeros around what a convolution has."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import lru_cache
from math import isqrt

from nas.frozen import frozen
from nas.graph import Graph
from nas.layers import Conv2d, DepthwiseConv2d
from nas.morphisms.carry import Edit
from nas.morphisms.channels import MorphismError
from nas.morphisms.morphism import Morphism
from nas.morphisms.sites import choose, known, live, replaced

LARGEST_KERNEL = 7  # that of ResNet's stem


@frozen
class EnlargeKernel(Morphism):
    """Puts zeros around a convolution's kernel, and as many around the image: no window moves."""

    node: str
    kernel: int
    """Side of the kernel after the edit."""

    def edit(self, graph: Graph) -> Edit:
        wider = _larger(self.node, _convolution(graph, self.node), self.kernel)
        if not live(wider, _area(graph, self.node)):
            raise MorphismError(f"{self.node}: a kernel of {self.kernel} would see padding only")
        # `_placed` of carry.py lays the old kernel in the middle of zeros.
        return Edit(replaced(graph, {self.node: wider}))

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> EnlargeKernel:
        """Enlarges a square spatial kernel by two. No 1×1 is proposed, because it would cost nine times as
        much."""
        kernels = {
            node.name: node.layer.kernel
            for node in graph.nodes
            if isinstance(node.layer, (Conv2d, DepthwiseConv2d))
            and isinstance(node.layer.kernel, int)
            and 1 < node.layer.kernel < LARGEST_KERNEL
            and _can_grow(node.layer, _area(graph, node.name))
        }
        node = choose(rng, list(kernels), "kernel that can grow")
        return cls(node, kernels[node] + 2)


@frozen
class Ungroup(Morphism):
    """Merges the groups of a convolution, with zeros where a group did not read."""

    node: str
    groups: int
    """Number of groups after the edit; a divisor of that before."""

    def edit(self, graph: Graph) -> Edit:
        layer = _convolution(graph, self.node)
        divides = 1 <= self.groups < layer.groups and layer.groups % self.groups == 0
        if not isinstance(layer, Conv2d) or not divides:
            raise MorphismError(
                f"{self.node} has {layer.groups} groups, which do not merge into {self.groups}"
            )
        # `Reading.blocks` places the weights of each old group where that group read; the rest is zero.
        return Edit(replaced(graph, {self.node: replace(layer, groups=self.groups)}))

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> Ungroup:
        """One group, or the largest divisor of their number that is at most half of it."""
        sites = [node.name for node in graph.nodes if node.layer.groups > 1]
        node = choose(rng, sites, "grouped convolution")
        groups = graph.node[node].layer.groups
        least = next((factor for factor in range(2, isqrt(groups) + 1) if groups % factor == 0), groups)
        return cls(node, rng.choice([1, groups // least]))


def _convolution(graph: Graph, name: str) -> Conv2d | DepthwiseConv2d:
    layer = known(graph, name).layer
    if not isinstance(layer, (Conv2d, DepthwiseConv2d)):
        raise MorphismError(f"{name} is no convolution")
    return layer


def _larger(name: str, layer: Conv2d | DepthwiseConv2d, kernel: int) -> Conv2d | DepthwiseConv2d:
    """The layer with the larger kernel, padded so that its windows stand around the same pixels."""
    if not isinstance(layer.kernel, int):
        raise MorphismError(f"{name} has a kernel of {layer.kernel}; only square ones are enlarged")
    more = kernel - layer.kernel
    if more <= 0 or more % 2:
        raise MorphismError(f"{name} has a kernel of {layer.kernel}, to which {kernel} adds no whole margin")
    if layer.padding is None:  # it follows from the kernel
        return replace(layer, kernel=kernel)
    (height, width), (down, right) = layer.paddings, layer.dilations
    return replace(layer, kernel=kernel, padding=(height + down * more // 2, width + right * more // 2))


# Each proposal asks it of all convolutions, and most graphs have the same ones.
@lru_cache(maxsize=1 << 12)
def _can_grow(layer: Conv2d | DepthwiseConv2d, area: tuple[int, ...]) -> bool:
    """Whether the kernel, a square one, may be larger by two and still see the image with each tap."""
    assert isinstance(layer.kernel, int)
    return live(_larger(type(layer).__name__, layer, layer.kernel + 2), area)


def _area(graph: Graph, name: str) -> tuple[int, ...]:
    """Height and width of what a node reads."""
    return graph.shapes[graph.node[name].inputs[0]][1:]
