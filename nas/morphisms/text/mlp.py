"""Wider MLPs, and plain ones that become gated."""

from __future__ import annotations

import random
from dataclasses import dataclass

from nas.graph import Graph, Node
from nas.layers import Linear, Product
from nas.morphisms.channels import MorphismError
from nas.morphisms.morphism import Morphism
from nas.morphisms.sites import choose, inserted, known, possible, replaced, seed_from, unused
from nas.morphisms.text.tensor_sources import Growth, more, resized
from nas.morphisms.text.text_ties import ACTIVATIONS, check_text, hidden, tie_of, wider_width


@dataclass(frozen=True)
class WidenMLP(Morphism):
    """Gives an MLP new hidden features with random weights, of all its branches, read with zeros.

    The new columns of the output projection learn in the first step, the new features in the second
    (Gesmundo and Maile 2023; with copies instead of zeros: Chen et al., "Net2Net", ICLR 2016).
    """

    node: str
    """A Linear that writes hidden features."""
    features: int
    """Number of features after the edit."""
    seed: int

    def edit(self, graph: Graph) -> Growth:
        tie = tie_of(graph, hidden(graph), self.node, "hidden features")
        if self.features <= tie.width:
            raise MorphismError(f"{self.node} has {tie.width} features, not fewer than {self.features}")
        wider = {node.name: node.layer.widened(self.features) for node in tie.writers}
        source = more(tie.width, self.features)
        taken = resized(
            graph,
            puts_out=dict.fromkeys(wider, source),
            reads=dict.fromkeys([node.name for node in tie.readers], source),
            new_read=0.0,
        )
        return Growth(replaced(graph, wider), taken, seed=self.seed)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> WidenMLP:
        tie = choose(rng, hidden(graph), "MLP")
        return cls(tie.writers[0].name, wider_width(tie, rng), seed_from(rng))


@dataclass(frozen=True)
class GateMLP(Morphism):
    """Multiplies an activation by a new Linear of what its own Linear reads: W = 0 and b = 1 at first.

    0·x + 1 is 1, so nothing changes, bit for bit. As W has a gradient at once, it needs no random values.
    """

    node: str
    """The activation."""

    def edit(self, graph: Graph) -> Growth:
        check_text(graph)
        (read,) = _gateable(graph, self.node)
        gate, width = unused(graph, "gate"), graph.shapes[self.node][1]
        nodes = [
            Node(f"{gate}.linear", Linear(width, bias=True), (read,)),
            Node(f"{gate}.product", Product(), (self.node, f"{gate}.linear")),
        ]
        constants = {f"{gate}.linear.weight": 0.0, f"{gate}.linear.bias": 1.0}
        return Growth(inserted(graph, self.node, nodes), constants=constants)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> GateMLP:
        check_text(graph)
        return cls(choose(rng, possible(graph, _gateable), "plain MLP"))


def _gateable(graph: Graph, name: str) -> tuple[str, ...]:
    """The inputs of the Linear before a plain activation. Raises MorphismError if it cannot get a gate."""
    node = known(graph, name)
    above = graph.node.get(node.inputs[0])
    if not isinstance(node.layer, ACTIVATIONS) or above is None or not isinstance(above.layer, Linear):
        raise MorphismError(f"{name} is no activation of a Linear")
    if not all(isinstance(reader.layer, Linear) for reader in graph.readers[name]) or name == graph.output:
        raise MorphismError(f"{name} is not read by Linears alone; a gated MLP gets no second gate")
    return above.inputs
