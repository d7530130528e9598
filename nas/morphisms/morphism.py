"""What every morphism is: an edit of a graph that comes with the weights that keep its function."""

from __future__ import annotations

import random
from typing import Protocol

from nas.frozen import frozen
from nas.graph import Graph
from nas.weights import Array, Weights

MOMENTUM, SQUARES, STEPS = 1, 2, 0
"""The power with which a kind of optimizer state follows a factor on the gradient: a mean of gradients (of
SGD, Adam's m), a mean of their squares (Adam's v), and how many there were."""


class Change(Protocol):
    """A child, and how a parent's tensors are carried to it: `Edit` for images, `Growth` for text."""

    @property
    def child(self) -> Graph: ...

    def carried(self, parent: Graph, weights: Weights) -> dict[str, Array]: ...

    def carried_state(self, parent: Graph, state: Weights, power: int) -> dict[str, Array]: ...


@frozen
class Morphism:
    """A function-preserving edit of a graph.

    `carry` gives the child the weights with which it computes what its parent computes, in training
    as in validation.
    """

    def apply(self, graph: Graph) -> Graph:
        """The child. Raises MorphismError or ShapeError where there can be none."""
        return self.edit(graph).child

    def carry(self, graph: Graph, weights: Weights) -> dict[str, Array]:
        """The child's parameters and statistics, from the parent `graph` and its `weights`.

        Of the type of `weights`, computed in fp64 and rounded once. Tensors that do not change are
        the parent's own arrays, not copies.
        """
        return self.edit(graph).carried(graph, weights)

    def carry_state(self, graph: Graph, state: Weights, power: int = MOMENTUM) -> dict[str, Array]:
        """The optimizer's state of the child's parameters; `power` says which kind of state it is.

        MOMENTUM: what the edit makes of a gradient; SQUARES: of its square; both 0 where new. STEPS: one
        number for each tensor, (): as many as the parent's where anything is taken from it, else 0.
        """
        return self.edit(graph).carried_state(graph, state, power)

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> Morphism:
        """A morphism that applies, its place and size drawn from `rng`. Raises MorphismError if there is no
        place."""
        raise NotImplementedError

    def edit(self, graph: Graph) -> Change:
        """The child, and what `carry` must know. Raises MorphismError or ShapeError."""
        raise NotImplementedError
