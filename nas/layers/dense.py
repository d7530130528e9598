"""The fully connected layer, and the loss behind the last one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from nas.layers.layer import Layer
from nas.layers.shapes import Shape, refuse_no_sizes, vector
from nas.ops import Cost, Ops


@dataclass(frozen=True)
class Dense(Layer):
    """A fully connected layer. Weight: (features, features in)."""

    mixes_channels = True
    features: int
    bias: bool = True

    def __post_init__(self) -> None:
        refuse_no_sizes(self, "features")

    def shape(self, *inputs: Shape) -> Shape:
        vector(self, inputs)
        return (self.features,)

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        weight = {"weight": (self.features, inputs[0][0])}
        return {**weight, "bias": (self.features,)} if self.bias else weight

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        products = Ops(mac=inputs[0][0] * self.features)
        rows = {"dense": Cost(products, products, products, products)}
        if self.bias:
            sums = Ops(add=self.features)
            rows["bias"] = Cost(forward=sums, weight_grad=sums, evaluate=sums)
        return rows

    def widened(self, width: int) -> Dense:
        return replace(self, features=width)


def softmax_cross_entropy(classes: int) -> Cost:
    """The loss of one image, or of one position. Validation of images needs the greatest logit only."""
    return Cost(
        forward=Ops(cmp=classes - 1, add=2 * classes + 1, exp=classes + 1, div=classes),
        input_grad=Ops(add=classes, mul=classes),
        evaluate=Ops(cmp=classes - 1),
    )
