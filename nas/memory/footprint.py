"""What one layer takes of memory in a training step, besides the tensors of the graph."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import singledispatch
from math import prod

from nas.layers import Layer, Shape

WIDE = 4
"""Bytes of a number in fp32, in which weights, their gradients and the stream of a text are."""
INDEX = 8
"""Bytes of an int64."""


@dataclass(frozen=True)
class Read:
    """A tensor that a layer reads: its shape for one example, and the bytes of each number."""

    shape: Shape
    width: int

    @property
    def num(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.num * self.width


class Output(Enum):
    """Where a layer's output lies."""

    NEW = 0
    OVER_FIRST = 1
    """In place of the first input, if `nas.memory.in_place` allows it."""
    VIEW = 2
    """It is its input in another shape."""


@dataclass(frozen=True)
class Footprint:
    """Of one layer in a training step. Bytes are of one example."""

    width: int
    """Bytes of a number of the output."""
    keeps: tuple[int, ...] = ()
    """Which inputs the backward pass needs."""
    keeps_output: bool = False
    """Whether the backward pass needs the output."""
    inside: int = 0
    """Bytes that it makes besides its output and keeps for the backward pass."""
    forward: int = 0
    """Bytes that it needs for a moment of the forward pass."""
    backward: int = 0
    """Bytes that it needs for a moment of the backward pass, besides the gradients of its inputs."""
    output: Output = Output.NEW
    passes_on: bool = False
    """Whether the gradient of each input is that of the output, in the same memory."""
    narrow_weights: bool = False
    """Whether its weights are copied to the format of training, and the copies kept."""
    blocked_weights: bool = False
    """Whether oneDNN, on a processor only, lays out its weights, or their gradient, anew for a moment."""


@singledispatch
def footprint(layer: Layer, narrow: int, *reads: Read) -> Footprint:
    """`narrow`: bytes of a number in the format of training. Of a layer that is not known here, it is
    assumed that it keeps all that it reads and its output."""
    width = max((read.width for read in reads), default=narrow)
    return Footprint(width, tuple(range(len(reads))), keeps_output=True)
