"""What the output of a graph is asked, and what its loss costs."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from nas.frozen import frozen
from nas.layers.shapes import Shape, ShapeError
from nas.ops import Cost, Ops

BYTES = 256
"""Symbols of a text that is read byte by byte."""
WIDTHS = {"float32": 4, "int64": 8}
"""Bytes of a number, by its type."""


@frozen
class Head:
    """The question behind the last layer, and what the first one reads. A record names its class."""

    example: ClassVar[str]
    """What the operations are counted for, as tables call it."""
    answers: ClassVar[str]
    """What it tells apart, as tables call it."""
    input_name: ClassVar[str]
    """What a batch of the input is called, in programs and files that compute the network."""
    input_type: ClassVar[str] = "float32"
    """The type of its numbers, a key of `WIDTHS`. Whole numbers are symbols, which only some layers read."""
    uncounted: ClassVar[str]
    """The work that the table of operations leaves out."""

    def check(self, input: Shape, output: Shape) -> None:
        """Raises ShapeError where the question does not fit the shapes of the input and of the output."""
        raise NotImplementedError

    def targets(self, input: Shape) -> Shape:
        """The shape of the right answers to one example, whole numbers below the number of answers."""
        raise NotImplementedError

    def example_bytes(self, input: Shape) -> int:
        """Bytes of one example and its right answers, as a network is given them."""
        return WIDTHS[self.input_type] * prod(input) + WIDTHS["int64"] * prod(self.targets(input))

    def loss(self, output: Shape) -> Cost:
        """The cost of the loss for one example."""
        raise NotImplementedError

    def wording(self, input: Shape) -> str:
        """What one example is, in a few words."""
        raise NotImplementedError

    def examples_text(self, input: Shape, classes: int) -> str:
        """Examples of this shape and number of answers, in a few words."""
        return f"{classes} {self.answers} of {' x '.join(map(str, input))}"


@frozen
class Classes(Head):
    """One of n classes for the whole input. Output: (classes,)."""

    example = "image"
    answers = "classes"
    input_name = "images"
    uncounted = "Padding is counted. Optimizer steps, augmentation and work done once per batch are not."

    def check(self, input: Shape, output: Shape) -> None:
        if len(output) != 1:
            raise ShapeError(f"the output has the shape {output}, not (classes,)")

    def targets(self, input: Shape) -> Shape:
        return ()

    def loss(self, output: Shape) -> Cost:
        return softmax_cross_entropy(output[0])

    def wording(self, input: Shape) -> str:
        return f"image of {' × '.join(map(str, input))}"


@frozen
class NextSymbol(Head):
    """At each position the symbol that follows. Input: (positions,), output: (positions, symbols).

    The loss is a cross-entropy at every position. An evaluation asks how probable the right symbol was, not
    only which one was the most probable, so log p is counted there.
    """

    example = "example"
    answers = "symbols"
    input_name = "symbols"
    input_type = "int64"
    uncounted = "Recomputation, masks, tables of angles and optimizer steps are not counted."

    def check(self, input: Shape, output: Shape) -> None:
        if len(input) != 1:
            raise ShapeError(f"the input is {input}; the next symbol is asked of (positions,)")
        if len(output) != 2 or output[0] != input[0]:
            raise ShapeError(f"the output has the shape {output}, not ({input[0]}, symbols)")

    def targets(self, input: Shape) -> Shape:
        return input

    def loss(self, output: Shape) -> Cost:
        positions, symbols = output
        one = softmax_cross_entropy(symbols)
        # log p = (z − max) − log Σ exp(z − max). Greatest: cmp n − 1; z − max: add n; exp n; Σ: add n − 1;
        # log: exp 1; the difference: add 1
        evaluate = Ops(cmp=symbols - 1, add=2 * symbols, exp=symbols + 1)
        return Cost(
            forward=one.forward * positions,
            input_grad=one.input_grad * positions,
            evaluate=evaluate * positions,
        )

    def wording(self, input: Shape) -> str:
        return f"example of {input[0]:,} positions"

    def examples_text(self, input: Shape, classes: int) -> str:
        symbols = "bytes" if classes == BYTES else f"{classes} symbols"
        return f"windows of {input[0]:,} {symbols}"


def softmax_cross_entropy(classes: int) -> Cost:
    """The loss of one image, or of one position. Validation of images needs the greatest logit only."""
    return Cost(
        forward=Ops(cmp=classes - 1, add=2 * classes + 1, exp=classes + 1, div=classes),
        input_grad=Ops(add=classes, mul=classes),
        evaluate=Ops(cmp=classes - 1),
    )
