"""The fully connected layer, and the loss behind the last one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import TYPE_CHECKING

from nas.layers.footprint import Footprint, Read, of_product
from nas.layers.initial_values import Start, Uniform
from nas.layers.layer import Layer
from nas.layers.shapes import Shape, refuse_no_sizes, vector
from nas.layers.torch_line import TorchLine, options
from nas.ops import Cost, Ops

if TYPE_CHECKING:
    from nas.layers.onnx_place import LayerPlace


@dataclass(frozen=True)
class Dense(Layer):
    """A fully connected layer. Weight: (features, features in)."""

    frees_output = True
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

    def start(self, tensor: str, *inputs: Shape) -> Start:
        """Uniform by the fan in, as PyTorch's own dense layers begin."""
        return Uniform(1 / sqrt(prod(inputs[0])))

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return of_product(narrow, reads[0])

    def torch_line(self, *inputs: Shape) -> TorchLine:
        bias = options((self.bias, True, "bias=False"))
        return TorchLine("{own}({0})", f"nn.Linear({inputs[0][-1]}, {self.features}{bias})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        tensors = [at.weight(name) for name in ("weight", "bias") if name in at.weights]
        at.last("Gemm", inputs[0], *tensors, transB=1)


def softmax_cross_entropy(classes: int) -> Cost:
    """The loss of one image, or of one position. Validation of images needs the greatest logit only."""
    return Cost(
        forward=Ops(cmp=classes - 1, add=2 * classes + 1, exp=classes + 1, div=classes),
        input_grad=Ops(add=classes, mul=classes),
        evaluate=Ops(cmp=classes - 1),
    )
