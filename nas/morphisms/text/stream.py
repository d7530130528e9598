"""A wider residual stream."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from math import sqrt

from nas.graph import Graph
from nas.layers import Embedding, Layer, Linear, RMSNorm
from nas.morphisms.channels import MorphismError
from nas.morphisms.morphism import Morphism
from nas.morphisms.sites import choose, replaced, seed_from
from nas.morphisms.text.tensor_sources import Growth, Taken, more, resized
from nas.morphisms.text.text_ties import streams, tie_of, wider_width


@dataclass(frozen=True)
class WidenStream(Morphism):
    """Gives a residual stream new features: all writers leave them at zero, all readers weigh them at random.

    Zeros do not change the sum of squares in a norm, but its mean is over D features instead of d. With
    ε' = ε·d/D the root is √(d/D) times what it was, and γ' = γ·√(d/D) takes that back (γ: Gesmundo and Maile
    2023, whose norm has no ε; both: Wang et al., "LEMON", ICLR 2024). The gradient of γ' is √(D/d) times
    that of γ. New features of γ start at √(d/D), where those of an untrained norm are now. Zeros on both
    sides would have no gradient.
    """

    node: str
    """A Linear, an Embedding or Experts that write into the stream."""
    features: int
    """Number of features after the edit."""
    seed: int

    def edit(self, graph: Graph) -> Growth:
        tie = tie_of(graph, streams(graph), self.node, "a residual stream")
        if self.features <= tie.width:
            raise MorphismError(f"{self.node} has {tie.width} features, not fewer than {self.features}")
        part, source = tie.width / self.features, more(tie.width, self.features)
        layers: dict[str, Layer] = {}
        for node in tie.writers:
            layer = node.layer
            if isinstance(layer, Embedding):
                layers[node.name] = replace(layer, features=self.features)
            elif isinstance(layer, Linear):  # experts are as wide as what they read
                layers[node.name] = layer.widened(self.features)
        taken = resized(
            graph,
            puts_out=dict.fromkeys([node.name for node in tie.writers], source),
            reads=dict.fromkeys([node.name for node in tie.readers], source),
            new_out=0.0,
        )
        scale = sqrt(part)
        for node in tie.passing:
            if isinstance(node.layer, RMSNorm):
                layers[node.name] = replace(node.layer, epsilon=node.layer.epsilon * part)
                taken[f"{node.name}.weight"] = Taken(source, factor=scale, gradient=1 / scale, new_rows=scale)
        return Growth(replaced(graph, layers), taken, seed=self.seed)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> WidenStream:
        tie = choose(rng, streams(graph), "residual stream")
        return cls(tie.writers[0].name, wider_width(tie, rng), seed_from(rng))
