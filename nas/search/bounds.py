"""What a candidate may be, checked before it is dispatched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from nas.graph import Graph


class Bounds(Protocol):
    """Multiples of the seed's own figures; the configuration's own class is one."""

    @property
    def min_operations(self) -> float: ...

    @property
    def max_operations(self) -> float: ...

    @property
    def max_parameters(self) -> float: ...

    @property
    def min_activations(self) -> float: ...

    @property
    def max_activations(self) -> float: ...

    @property
    def growth_rounds(self) -> int:
        """Rounds in which candidates grow into the bounds of operations; 0: they begin within them."""


def in_round(least: float, most: float, bounds: Bounds, round_: int) -> tuple[float, float]:
    """A bound of candidates as it is in that round (from 1), as multiples of the seed's figure.

    While networks grow both limits rise geometrically: the first round has the seed's size, and the bounds
    themselves hold from the round after the last one of growth.
    """
    if not bounds.growth_rounds or not least:
        return least, most
    smaller = least ** (min(1.0, (round_ - 1) / bounds.growth_rounds) - 1)
    return least * smaller, most * smaller


@dataclass(frozen=True)
class Size:
    """The figures of an architecture that are bounded.

    Activations are elements: their bytes are a multiple that is the same for child and seed.
    """

    operations: int
    """OPS of one training example."""
    parameters: int
    activations: int
    """Elements of all node outputs, for one example."""

    @staticmethod
    def of(graph: Graph) -> Size:
        return Size(graph.operations, graph.num_parameters, graph.num_activations)

    def within(self, bounds: Bounds, seed: Size, round_: int = 1) -> bool:
        """Whether a candidate of that round may have this size."""
        operations, _ = in_round(bounds.min_operations, bounds.max_operations, bounds, round_)
        activations, _ = in_round(bounds.min_activations, bounds.max_activations, bounds, round_)
        return (
            operations * seed.operations <= self.operations
            and activations * seed.activations <= self.activations
            and self.below(bounds, seed, round_)
        )

    def below(self, bounds: Bounds, seed: Size, round_: int = 1) -> bool:
        """Whether a candidate of that round may have this size, or may grow from it."""
        _, operations = in_round(bounds.min_operations, bounds.max_operations, bounds, round_)
        _, activations = in_round(bounds.min_activations, bounds.max_activations, bounds, round_)
        return (
            self.operations <= operations * seed.operations
            and self.parameters <= bounds.max_parameters * seed.parameters
            and self.activations <= activations * seed.activations
        )
