"""Layers that take every element, or every channel, by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from nas.layers.footprint import Footprint, Output, Read, keeps_input
from nas.layers.initial_values import Constant, Start
from nas.layers.layer import Layer
from nas.layers.shapes import Shape, ShapeError, image, only
from nas.layers.torch_line import TorchLine
from nas.ops import Cost, Ops

if TYPE_CHECKING:
    from nas.layers.onnx_place import LayerPlace

BATCH_NORM_EPSILON = 1e-5
"""Added to the variance: PyTorch's own value, and that of torchvision's and the published ResNets."""


@dataclass(frozen=True)
class BatchNorm(Layer):
    """Batch normalisation with learnt scale and shift, and running statistics for validation."""

    frees_output = True

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

    def start(self, tensor: str, *inputs: Shape) -> Start:
        return Constant({"weight": 1, "bias": 0, "running_mean": 0, "running_var": 1}[tensor])

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return keeps_input(reads[0])

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("{own}({0})", f"nn.BatchNorm2d({inputs[0][0]})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        tensors = [at.weight(name) for name in ("weight", "bias", "running_mean", "running_var")]
        at.last("BatchNormalization", inputs[0], *tensors, epsilon=BATCH_NORM_EPSILON)


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

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return Footprint(reads[0].width, keeps_output=True, output=Output.OVER_FIRST)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("F.relu({0})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Relu", *inputs)


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

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        """Its backward pass needs what it read; in place, torch keeps a copy of that."""
        return keeps_input(reads[0])

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("F.relu6({0})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Clip", inputs[0], at.constant("least", 0.0), at.constant("greatest", 6.0))


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

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return Footprint(reads[0].width, inside=reads[0].bytes)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine(f"F.dropout({{0}}, {self.rate!r}, self.training)")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Identity", *inputs)  # it is a step of training alone


@dataclass(frozen=True)
class Gate(Layer):
    """2·sigmoid(z)·x, channel by channel, of inputs x (channels, height, width) and z (channels,).

    The factor 2 makes z = 0 the identity, so that squeeze-excite can be added to a trained network
    (Hu et al., "Squeeze-and-Excitation Networks", CVPR 2018, without the factor).
    """

    frees_output = True

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

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return Footprint(reads[0].width, (0,), backward=reads[0].bytes)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("{0} * (2 * torch.sigmoid({1}))[:, :, None, None]")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        gate = at.step("Mul", at.step("Sigmoid", inputs[1]), at.constant("two", 2.0))
        at.last("Mul", inputs[0], at.step("Unsqueeze", gate, at.constant("area", [2, 3])))
