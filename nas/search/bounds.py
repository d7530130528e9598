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
    def max_activations(self) -> float: ...


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

    def within(self, bounds: Bounds, seed: Size) -> bool:
        return (
            bounds.min_operations * seed.operations
            <= self.operations
            <= bounds.max_operations * seed.operations
            and self.parameters <= bounds.max_parameters * seed.parameters
            and self.activations <= bounds.max_activations * seed.activations
        )
