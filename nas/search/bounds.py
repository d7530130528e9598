"""What a candidate may be, checked before it is dispatched."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Protocol

from nas.frozen import frozen
from nas.graph import Graph

STEP = 1.25
"""The width of the bounds of a round in which networks still grow: a morphism is seldom a smaller step."""


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
    def min_layers(self) -> float: ...

    @property
    def max_layers(self) -> float:
        """0: any number."""

    @property
    def growth_rounds(self) -> int:
        """Rounds in which candidates grow into the bounds; 0: they begin within them."""


def in_round(least: float, most: float, bounds: Bounds, round_: int) -> tuple[float, float]:
    """A bound of candidates as it is in that round (from 1), as multiples of the seed's figure.

    While networks grow both limits rise geometrically: the first round has the seed's size, and the bounds
    themselves hold from the round after the last one of growth. Until then they are at least as wide as STEP.
    """
    if not bounds.growth_rounds or not least:
        return least, most
    smaller = least ** (min(1.0, (round_ - 1) / bounds.growth_rounds) - 1)
    return least * smaller, min(most, smaller * max(most, STEP * least))


@frozen
class Size:
    """The figures of an architecture that are bounded: operations and activations of one training example,
    parameters, and layers, each of which takes the time of a kernel's call however small it is.

    Activations are elements: their bytes are a multiple that is the same for child and seed.
    """

    graph: Graph

    def within(self, bounds: Bounds, seed: Size, round_: int = 1) -> bool:
        """Whether a candidate of that round may have this size."""
        figures = self._compared(bounds, seed, round_)
        return all(least * of_seed <= own <= most * of_seed for own, of_seed, least, most in figures)

    def below(self, bounds: Bounds, seed: Size, round_: int = 1) -> bool:
        """Whether a candidate of that round may have this size, or may grow from it."""
        return all(own <= most * of_seed for own, of_seed, _, most in self._compared(bounds, seed, round_))

    def _compared(self, bounds: Bounds, seed: Size, round_: int) -> Iterator[tuple[int, int, float, float]]:
        """Each figure, that of the seed, and the least and the greatest multiple of the seed's that is
        allowed. Operations are last, because counting them takes most of the time and half of the candidates
        have too many activations."""
        own, of_seed = self.graph, seed.graph
        activations = in_round(bounds.min_activations, bounds.max_activations, bounds, round_)
        yield own.num_activations, of_seed.num_activations, *activations
        yield own.num_parameters, of_seed.num_parameters, 0.0, bounds.max_parameters
        layers = in_round(bounds.min_layers, bounds.max_layers or inf, bounds, round_)
        yield len(own.nodes), len(of_seed.nodes), *layers
        operations = in_round(bounds.min_operations, bounds.max_operations, bounds, round_)
        yield own.operations, of_seed.operations, *operations
