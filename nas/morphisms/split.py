"""One branch made two that add up to it."""

from __future__ import annotations

import random
from dataclasses import dataclass

from nas.graph import Graph, Node
from nas.layers import Add, BatchNorm
from nas.morphisms.carry import Edit, Twin
from nas.morphisms.channels import MorphismError
from nas.morphisms.morphism import Morphism
from nas.morphisms.sites import choose, inserted, known, unused


@dataclass(frozen=True)
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
