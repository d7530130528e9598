"""What one layer takes of memory in a training step, besides the tensors of the graph."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod

from nas.layers.shapes import Shape

WIDE = 4
"""Bytes of a number in fp32, in which weights, their gradients and the stream of a text are."""
INDEX = 8
"""Bytes of a whole number of 64 bits (int64)."""


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
    """In place of the first input, if that input's own layer `frees_output` and nobody else reads it."""
    VIEW = 2
    """It is its input in another shape."""


@dataclass(frozen=True)
class Footprint:
    """What one layer takes in a training step. Bytes are of one example.

    It is what torch's own modules and autograd do in eager steps (derivatives.yaml of PyTorch states what an
    operation saves). What a library takes inside one operation, as oneDNN's and cuDNN's workspaces, is not in
    it.
    """

    width: int
    """Bytes of a number of the output."""
    keeps: tuple[int, ...] = ()
    """Which inputs the backward pass needs."""
    keeps_output: bool = False
    """Whether the backward pass needs the output."""
    inside: int = 0
    """Bytes that it makes besides its output and keeps for the backward pass."""
    once: int = 0
    """Bytes that it makes and keeps for the backward pass, however many examples there are."""
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


def of_product(narrow: int, read: Read) -> Footprint:
    """A product with a matrix or a kernel. Autocast copies what it reads to its format, and each reader of a
    tensor has its own copy."""
    copy = 0 if read.width == narrow else read.num * narrow
    keeps = () if copy else (0,)
    return Footprint(narrow, keeps, inside=copy, backward=copy, narrow_weights=narrow < WIDE)


def keeps_input(read: Read) -> Footprint:
    """A layer of every element whose backward pass needs what it read."""
    return Footprint(read.width, (0,))
