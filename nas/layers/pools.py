"""Pools: one number of every window of each channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from nas.layers.layer import Layer
from nas.layers.shapes import Shape, image
from nas.layers.windows import Windowed
from nas.ops import Cost, Ops


@dataclass(frozen=True)
class MaxPool(Windowed, Layer):
    """The greatest of each window."""

    keeps_sign = True

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        y = prod(self.shape(*inputs))
        compare = Ops(cmp=(self.kernel**2 - 1) * y)
        return {"maxpool": Cost(forward=compare, input_grad=Ops(add=y), evaluate=compare)}


@dataclass(frozen=True)
class AveragePool(Windowed, Layer):
    """The mean of each window, padding included."""

    keeps_sign = True

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        x, y, taps = prod(inputs[0]), prod(self.shape(*inputs)), self.kernel**2
        # Where windows overlap, an input element gathers its gradient from several of them.
        gathered = taps * y if self.stride < self.kernel else 0
        mean = Ops(add=(taps - 1) * y, div=y)
        return {"avgpool": Cost(mean, Ops(mul=x, add=gathered), Ops(), mean)}


@dataclass(frozen=True)
class GlobalPool(Layer):
    """The mean of each channel: (channels, height, width) to (channels,)."""

    keeps_sign = True

    def shape(self, *inputs: Shape) -> Shape:
        return image(self, inputs)[:1]

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        channels, x = inputs[0][0], prod(inputs[0])
        mean = Ops(add=x - channels, div=channels)
        return {"avgpool": Cost(forward=mean, input_grad=Ops(mul=x), evaluate=mean)}
