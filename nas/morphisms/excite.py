"""Squeeze-excite: a gate on each channel, computed from all of them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from nas.graph import Graph, Node
from nas.layers import Dense, Gate, GlobalPool, ReLU
from nas.morphisms.carry import Edit
from nas.morphisms.channels import MorphismError
from nas.morphisms.morphism import Morphism
from nas.morphisms.sites import (
    choose,
    inserted,
    known,
    non_negative,
    non_negative_images,
    rounded,
    seed_from,
    unused,
)


@dataclass(frozen=True)
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
