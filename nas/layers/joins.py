"""Layers that put tensors together, or lay them out anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from nas.layers.layer import Layer
from nas.layers.shapes import Shape, ShapeError, image
from nas.ops import Cost, Ops


@dataclass(frozen=True)
class Add(Layer):
    """The sum of two or more inputs of one shape."""

    keeps_sign = True

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs) < 2 or len(set(inputs)) > 1:
            raise ShapeError(f"Add: needs two or more inputs of one shape, reads {list(inputs)}")
        return inputs[0]

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        sums = Ops(add=(len(inputs) - 1) * prod(inputs[0]))
        return {"add": Cost(forward=sums, evaluate=sums)}


@dataclass(frozen=True)
class Product(Layer):
    """The product of two inputs of one shape, element by element: of a branch and its gate."""

    keeps_sign = True

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs) != 2 or inputs[0] != inputs[1]:
            raise ShapeError(f"Product: needs two inputs of one shape, reads {list(inputs)}")
        return inputs[0]

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        x = prod(inputs[0])
        # dx of each input is dy times the other: mul x twice
        return {"product": Cost(Ops(mul=x), Ops(mul=2 * x), Ops(), Ops(mul=x))}


@dataclass(frozen=True)
class Concat(Layer):
    """The channels of two or more inputs, one after the other."""

    keeps_sign = True

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs) < 2 or len({(len(shape), *shape[1:]) for shape in inputs}) > 1:
            raise ShapeError(f"Concat: needs two or more inputs of one area, reads {list(inputs)}")
        if len(inputs[0]) == 2:
            raise ShapeError(f"Concat: reads images or vectors, not (positions, features) as {inputs[0]}")
        return (sum(shape[0] for shape in inputs), *inputs[0][1:])

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        return {"concat": Cost()}


@dataclass(frozen=True)
class Flatten(Layer):
    """(channels, height, width) to (channels · height · width,), channels slowest."""

    keeps_sign = True

    def shape(self, *inputs: Shape) -> Shape:
        return (prod(image(self, inputs)),)

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        return {"flatten": Cost()}
