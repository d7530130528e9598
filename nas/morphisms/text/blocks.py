"""More depth: pre-norm blocks of attention and MLP that add nothing at first.

What writes into the residual stream, the output projections, starts at zero: x + 0 is x, bit for bit
(Gesmundo and Maile, "Composable Function-preserving Expansions for Transformer Architectures",
arXiv:2308.06103). The first step moves the output projections, the second all that stands before them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

from nas.frozen import frozen
from nas.graph import Graph, Node
from nas.layers import GELU, Add, Attention, Embedding, Layer, Linear, Product, RMSNorm, SiLU, SquaredReLU
from nas.morphisms.channels import MorphismError
from nas.morphisms.morphism import Morphism
from nas.morphisms.sites import choose, inserted, known, rounded, seed_from, unused
from nas.morphisms.text.tensor_sources import Growth
from nas.morphisms.text.text_ties import attentions, check_text, heads_of, streams

PLAIN_FACTOR = 4  # hidden features of an MLP for each of the stream: GPT-2
GATED_FACTOR = 8 / 3  # as many weights in three matrices: Shazeer, arXiv:2002.05202


class Nonlinearity(Enum):
    GELU = "GELU"
    SILU = "SiLU"
    SQUARED_RELU = "SquaredReLU"


LAYERS: Mapping[Nonlinearity, Layer] = {
    Nonlinearity.GELU: GELU(),
    Nonlinearity.SILU: SiLU(),
    Nonlinearity.SQUARED_RELU: SquaredReLU(),
}


@frozen
class _Deepen(Morphism):
    """What both kinds of blocks share: attention, then an MLP."""

    gated: ClassVar[bool]
    """Whether the activation of the MLP is multiplied by a third Linear."""
    factor: ClassVar[float]
    """Features inside the MLP that are proposed, for each feature of the stream."""
    choices: ClassVar[tuple[Nonlinearity, Nonlinearity]]
    """Activations that are proposed."""

    node: str
    heads: int
    groups: int
    width: int
    """Features of one head."""
    rotary: float
    hidden: int
    """Features inside the MLP."""
    activation: Nonlinearity
    seed: int

    def edit(self, graph: Graph) -> Growth:
        check_text(graph)
        known(graph, self.node)
        if self.node not in _places(graph):
            raise MorphismError(f"{self.node} is not the sum or the embedding of a residual stream")
        width, name = graph.shapes[self.node][1], unused(graph, "block")
        nodes: list[Node] = []

        def put(part: str, layer: Layer, *inputs: str) -> str:
            nodes.append(Node(f"{name}.{part}", layer, inputs))
            return nodes[-1].name

        norm = put("norm1", RMSNorm(), self.node)
        reads = [
            put(f"attention.{part}", Linear(number * self.width), norm)
            for part, number in (("query", self.heads), ("key", self.groups), ("value", self.groups))
        ]
        mixed = put("attention", Attention(self.heads, self.groups, self.rotary), *reads)
        trunk = put("add1", Add(), self.node, put("attention.out", Linear(width), mixed))
        norm = put("norm2", RMSNorm(), trunk)
        inside = put("mlp.activation", LAYERS[self.activation], put("mlp.in", Linear(self.hidden), norm))
        if self.gated:
            inside = put("mlp.product", Product(), inside, put("mlp.gate", Linear(self.hidden), norm))
        put("add2", Add(), trunk, put("mlp.out", Linear(width), inside))
        zeros = dict.fromkeys([f"{name}.attention.out.weight", f"{name}.mlp.out.weight"], 0.0)
        return Growth(inserted(graph, self.node, nodes), constants=zeros, seed=self.seed)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> _Deepen:
        """A block at any place, with the heads of an existing attention."""
        check_text(graph)
        node = choose(rng, _places(graph), "residual stream")
        like = heads_of(graph, choose(rng, attentions(graph), "attention whose heads a block could have"))
        hidden = rounded(cls.factor * graph.shapes[node][1])
        heads = like.layer.heads, like.layer.groups, like.width, like.layer.rotary
        return cls(node, *heads, hidden, rng.choice(cls.choices), seed_from(rng))


@frozen
class DeepenPlain(_Deepen):
    """Puts a block behind `node`: attention, then an MLP of two Linears."""

    gated, factor = False, PLAIN_FACTOR
    choices = (Nonlinearity.GELU, Nonlinearity.SQUARED_RELU)


@frozen
class DeepenGated(_Deepen):
    """As `DeepenPlain`, with an MLP whose activation is multiplied by a third Linear."""

    gated, factor = True, GATED_FACTOR
    choices = (Nonlinearity.SILU, Nonlinearity.GELU)


def _places(graph: Graph) -> list[str]:
    """Nodes that a block can follow: the sums and embeddings of residual streams, not their norms."""
    return [
        node.name
        for tie in streams(graph)
        for node in (*tie.writers, *tie.passing)
        if isinstance(node.layer, (Add, Embedding))
    ]
