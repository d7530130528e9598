"""A task as a value: all that depends on what a network learns, but how it is read and trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiperf.config import DataConfig
from nas.graph import Graph
from nas.layers import Shape
from nas.morphisms import Morphism

Manifest = Mapping[str, Any]
"""What a rank found in the data, as plain JSON: docs/data.md."""


@dataclass(frozen=True)
class Examples:
    """What a network reads, and out of how many answers it chooses."""

    input: Shape
    classes: int

    @property
    def text(self) -> str:
        return f"{self.classes} classes of {' x '.join(map(str, self.input))}"


@dataclass(frozen=True)
class RankedLimits:
    """What a run of this task must be to be ranked, beside what is asked of every run."""

    seed: str
    """The starting architecture, by name; candidates stay within the default bounds around it."""
    most_error: float
    """Of the best network, on the test part."""
    control_size: int
    """Of the control's examples: the largest of `ControlNetwork.sizes`."""
    data: str
    """The examples, in words."""
    data_faults: Callable[[Manifest], Sequence[str]]
    """What keeps data from being those."""


@dataclass(frozen=True)
class ControlNetwork:
    """A fixed network that is timed before the span, to compare with other benchmarks."""

    name: str
    sizes: tuple[int, ...]
    """Of examples, from the smallest; a processor stops at the largest that it does in the time."""
    graph: Callable[[int], Graph]
    """For examples of a size."""


@dataclass(frozen=True)
class Task:
    name: str
    example: str
    """What one is called."""
    data_sets: tuple[str, ...]
    """The values of `data.name` that are of this task."""
    examples: Callable[[DataConfig], Examples]
    seeds: Mapping[str, Callable[[Shape, int], Graph]]
    """Starting architectures by name, for what is read and the number of answers."""
    morphisms: Mapping[type[Morphism], float]
    """How an architecture may grow, and how often each is drawn."""
    control: ControlNetwork
    ranked: RankedLimits
