"""Layers that take every element, or every channel, by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from nas.layers.layer import Layer
from nas.layers.shapes import Shape, ShapeError, image, only
from nas.ops import Cost, Ops


@dataclass(frozen=True)
class BatchNorm(Layer):
    """Batch normalisation with learnt scale and shift, and running statistics for validation."""

    def shape(self, *inputs: Shape) -> Shape:
        return image(self, inputs)

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        channels = inputs[0][:1]
        return {"weight": channels, "bias": channels}

    def statistics(self, *inputs: Shape) -> Mapping[str, Shape]:
        channels = inputs[0][:1]
        return {"running_mean": channels, "running_var": channels}

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        # Work for a channel and a batch (1 / sqrt(var + eps), running statistics) is not for an image.
        x = prod(inputs[0])
        return {
            "bn": Cost(
                # mean: add; variance: sub, mul, add; normalise: sub, mul; affine: mul, add
                forward=Ops(add=5 * x, mul=3 * x),
                # x̂ again: sub, mul; dy − Σdy/N: sub; x̂·Σ: mul; their difference: sub; times γ/σ: mul
                input_grad=Ops(add=3 * x, mul=3 * x),
                # Σdy: add; Σ dy·x̂: mul, add
                weight_grad=Ops(add=2 * x, mul=x),
                # normalise: sub, mul; affine: mul, add
                evaluate=Ops(add=2 * x, mul=2 * x),
            )
        }


@dataclass(frozen=True)
class ReLU(Layer):
    """max(x, 0)."""

    def shape(self, *inputs: Shape) -> Shape:
        return only(self, inputs)

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        compare = Ops(cmp=prod(inputs[0]))
        return {"relu": Cost(forward=compare, input_grad=compare, evaluate=compare)}

    def is_non_negative(self, *inputs: bool) -> bool:
        return True


@dataclass(frozen=True)
class ReLU6(Layer):
    """min(max(x, 0), 6) (Howard et al., "MobileNets", 2017; Sandler et al., "MobileNetV2", CVPR 2018)."""

    def shape(self, *inputs: Shape) -> Shape:
        return only(self, inputs)

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        # Twice what a ReLU does: each element is compared with 0 and with 6, and in dx again.
        compare = Ops(cmp=2 * prod(inputs[0]))
        return {"relu6": Cost(forward=compare, input_grad=compare, evaluate=compare)}

    def is_non_negative(self, *inputs: bool) -> bool:
        return True


@dataclass(frozen=True)
class Dropout(Layer):
    """Sets a share `rate` of the elements to zero in training and scales the rest by 1 / (1 − rate)."""

    keeps_sign = True
    tears_copies = True
    rate: float

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ShapeError(f"Dropout: rate {self.rate} is not between 0 and 1")

    def shape(self, *inputs: Shape) -> Shape:
        return only(self, inputs)

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        scale = Ops(mul=prod(inputs[0]))
        return {"dropout": Cost(forward=scale, input_grad=scale)}


@dataclass(frozen=True)
class Gate(Layer):
    """2·sigmoid(z)·x, channel by channel, of inputs x (channels, height, width) and z (channels,).

    The factor 2 makes z = 0 the identity, so that squeeze-excite can be added to a trained network
    (Hu et al., "Squeeze-and-Excitation Networks", CVPR 2018, without the factor).
    """

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs) != 2 or len(inputs[0]) != 3 or inputs[1] != inputs[0][:1]:
            raise ShapeError(f"Gate: needs (channels, height, width), (channels,); reads {list(inputs)}")
        return inputs[0]

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        channels, x = inputs[0][0], prod(inputs[0])
        gate = Ops(exp=channels, add=channels, div=channels, mul=channels + x)
        # dx: mul x; dz: dy·x summed over the area: mul x, add x − channels; σ' = σ(1 − σ)·2: mul 3, add 1
        grad = Ops(mul=2 * x + 3 * channels, add=x)
        return {"gate": Cost(forward=gate, input_grad=grad, evaluate=gate)}

    def is_non_negative(self, *inputs: bool) -> bool:
        return inputs[0]  # a sigmoid is positive, whatever z is
