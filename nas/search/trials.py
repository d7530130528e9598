"""Trials as a search sees them, from the proposal to the end of their life."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

from nas.frozen import frozen
from nas.graph import Graph, Node
from nas.head import Head
from nas.layers import Shape
from nas.morphisms import Morphism


@frozen
class Candidate:
    """An architecture to train: the parent's, edited by the morphisms in their order.

    It starts from the parent's weights, carried. Without a parent it starts from the untrained seed.
    """

    parent: int | None
    morphisms: tuple[Morphism, ...]
    graph: Graph


@frozen
class Observation:
    """The result of a completed trial."""

    number: int
    schedule: int
    """Training examples the trial was planned for; early stopping does not change it."""
    errors: tuple[tuple[int, float], ...]
    """The validation curve: training examples since the trial began, validation error, unbounded."""

    def __post_init__(self) -> None:
        if not self.errors:
            raise ValueError(f"trial {self.number} has no validation; it is not an observation")
        if not all(math.isfinite(error) for _, error in self.errors):
            raise ValueError(f"trial {self.number} has an error that is not a number: {self.errors}")

    def error_within(self, examples: int) -> float:
        """The best error by then; the first one where there was none as early."""
        return min((error for at, error in self.errors if at <= examples), default=self.errors[0][1])


@frozen(eq=False)
class StoredTrial:
    """A trial by its nodes, which are mostly its parent's own: so it is small."""

    parent: int | None
    input: Shape
    nodes: tuple[Node, ...]
    head: Head

    @cached_property
    def graph(self) -> Graph:
        """Inferred again. Most trials are never a parent."""
        return Graph(self.input, self.nodes, head=self.head)


@frozen(eq=False)
class Living:
    """A completed trial that can be a parent."""

    trial: StoredTrial
    observation: Observation
    children: Iterator[Candidate]
    """Children that it may have, one after the other."""
