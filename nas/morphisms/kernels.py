"""Larger kernels and fewer groups: zeros around what a convolution has."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from nas.graph import Graph
from nas.layers import Conv2d, DepthwiseConv2d
from nas.morphisms.carry import Edit
from nas.morphisms.channels import MorphismError
from nas.morphisms.morphism import Morphism
from nas.morphisms.sites import choose, known, live, replaced

LARGEST_KERNEL = 7  # that of ResNet's stem


@dataclass(frozen=True)
class EnlargeKernel(Morphism):
    """Puts zeros around a convolution's kernel."""

    node: str
    kernel: int
    """After the edit."""

    def edit(self, graph: Graph) -> Edit:
        layer = _convolution(graph, self.node)
        if self.kernel <= layer.kernel:
            raise MorphismError(f"{self.node} has a kernel of {layer.kernel}, not below {self.kernel}")
        wider = replace(layer, kernel=self.kernel)
        if not live(self.kernel, layer.stride, _area(graph, self.node)):
            raise MorphismError(f"{self.node}: a kernel of {self.kernel} would see padding only")
        return Edit(replaced(graph, {self.node: wider}))

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> EnlargeKernel:
        """A step of two, of spatial kernels only: a 1×1 would cost nine times as much."""
        sites = [
            node.name
            for node in graph.nodes
            if isinstance(node.layer, (Conv2d, DepthwiseConv2d))
            and 1 < node.layer.kernel < LARGEST_KERNEL
            and live(node.layer.kernel + 2, node.layer.stride, _area(graph, node.name))
        ]
        node = choose(rng, sites, "kernel that can grow")
        return cls(node, _convolution(graph, node).kernel + 2)


@dataclass(frozen=True)
class Ungroup(Morphism):
    """Merges the groups of a convolution, with zeros where a group did not read."""

    node: str
    groups: int
    """After the edit; a divisor of those before."""

    def edit(self, graph: Graph) -> Edit:
        layer = _convolution(graph, self.node)
        divides = 1 <= self.groups < layer.groups and layer.groups % self.groups == 0
        if not isinstance(layer, Conv2d) or not divides:
            raise MorphismError(
                f"{self.node} has {layer.groups} groups, which do not merge into {self.groups}"
            )
        return Edit(replaced(graph, {self.node: replace(layer, groups=self.groups)}))

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> Ungroup:
        """Half as many or so, or one."""
        sites = [node.name for node in graph.nodes if node.layer.groups > 1]
        node = choose(rng, sites, "grouped convolution")
        groups = graph.node[node].layer.groups
        most = next(fewer for fewer in range(groups // 2, 0, -1) if groups % fewer == 0)
        return cls(node, rng.choice([1, most]))


def _convolution(graph: Graph, name: str) -> Conv2d | DepthwiseConv2d:
    layer = known(graph, name).layer
    if not isinstance(layer, (Conv2d, DepthwiseConv2d)):
        raise MorphismError(f"{name} is no convolution")
    return layer


def _area(graph: Graph, name: str) -> tuple[int, ...]:
    """Of what a node reads."""
    return graph.shapes[graph.node[name].inputs[0]][1:]
