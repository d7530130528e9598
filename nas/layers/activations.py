"""Layers that take every element by itself.

Closed forms: operations of one element x. What the forward pass has put out on its way (Φ, σ, the rectified
x) is not counted again in the backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod, sqrt
from typing import ClassVar

from nas.frozen import frozen
from nas.layers.layer import Footprint, Layer, LayerPlace, Output, Read, TorchLine, keeps_input
from nas.layers.shapes import Shape, ShapeError, only
from nas.ops import Cost, Ops


class Elementwise:
    """What layers of every element share: what they cost, and that their backward pass needs what they read,
    unless they state otherwise. No layer itself: a record could name it."""

    frees_output: ClassVar[bool] = True
    row: ClassVar[str]
    """Its row in the table of operations."""
    forward: ClassVar[Ops]
    """Operations for one element, in training and in validation."""
    backward: ClassVar[Ops]
    """Operations for the gradient of one element."""
    in_torch: ClassVar[str]
    """The expression in PyTorch; "{0}" is what it reads."""

    def shape(self, *inputs: Shape) -> Shape:
        return only(self, inputs)

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        x = prod(inputs[0])
        return {self.row: Cost(self.forward * x, self.backward * x, Ops(), self.forward * x)}

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return keeps_input(reads[0])

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine(self.in_torch)


class Rectifier(Elementwise):
    """What layers of every element share that put out nothing negative."""

    def is_non_negative(self, *inputs: bool) -> bool:
        return True


@frozen
class ReLU(Rectifier, Layer):
    """max(x, 0)."""

    frees_output = False  # the backward pass needs the output
    row, in_torch = "relu", "F.relu({0})"
    forward = backward = Ops(cmp=1)

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return Footprint(reads[0].width, keeps_output=True, output=Output.OVER_FIRST)

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Relu", *inputs)


@frozen
class ReLU6(Rectifier, Layer):
    """min(max(x, 0), 6) (Howard et al., "MobileNets", 2017; Sandler et al., "MobileNetV2", CVPR 2018).

    Its backward pass needs what it read; in place, torch keeps a copy of that.
    """

    frees_output = False
    row, in_torch = "relu6", "F.relu6({0})"
    # Twice what a ReLU does: each element is compared with 0 and with 6, and in dx again.
    forward = backward = Ops(cmp=2)

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Clip", inputs[0], at.constant("least", 0.0), at.constant("greatest", 6.0))


@frozen
class GELU(Elementwise, Layer):
    """x·Φ(x) with Φ(x) = (1 + erf(x/√2))/2, exactly (Hendrycks and Gimpel, arXiv:1606.08415)."""

    row, in_torch = "gelu", "F.gelu({0})"
    # x/√2: mul; erf: exp; 1 + erf: add; half of it: mul; times x: mul
    forward = Ops(mul=3, add=1, exp=1)
    # dy·(Φ + x·φ) with φ = exp(−x²/2)/√2π. x²: mul; times −1/2: mul; exp; by √2π: mul; times x: mul;
    # Φ + : add; times dy: mul
    backward = Ops(mul=5, add=1, exp=1)

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Identity", onnx_gelu(at, inputs[0]))


@frozen
class SiLU(Elementwise, Layer):
    """x·σ(x) with σ(x) = 1/(1 + exp(−x)) (Elfwing et al., arXiv:1702.03118)."""

    row, in_torch = "silu", "F.silu({0})"
    forward = Ops(exp=1, add=1, div=1, mul=1)
    # dy·σ·(1 + x·(1 − σ)). 1 − σ: add; times x: mul; 1 + : add; times σ: mul; times dy: mul
    backward = Ops(mul=3, add=2)

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Identity", onnx_silu(at, inputs[0]))


@frozen
class SquaredReLU(Rectifier, Layer):
    """max(x, 0)² (So et al., "Primer", NeurIPS 2021)."""

    row, in_torch = "squared_relu", "F.relu({0}).square()"
    forward = Ops(cmp=1, mul=1)
    # dy·2·max(x, 0): mul, mul
    backward = Ops(mul=2)

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return Footprint(reads[0].width, inside=reads[0].bytes, backward=2 * reads[0].bytes)

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        positive = at.step("Relu", inputs[0])
        at.last("Mul", positive, positive)


@frozen
class HardSwish(Elementwise, Layer):
    """x·min(max(x + 3, 0), 6)/6 (Howard et al., "Searching for MobileNetV3", ICCV 2019)."""

    row, in_torch = "hard_swish", "F.hardswish({0})"
    # x + 3: add; with 0 and with 6: cmp 2; by 6: mul, as by a constant; times x: mul
    forward = Ops(add=1, cmp=2, mul=2)
    # 0 below −3 and dy above 3: cmp 2; between them dy·(x/3 + 1/2): mul, add, mul
    backward = Ops(add=1, cmp=2, mul=2)

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("HardSwish", *inputs)


@frozen
class HardSigmoid(Rectifier, Layer):
    """min(max(x + 3, 0), 6)/6, as in `HardSwish`."""

    row, in_torch = "hard_sigmoid", "F.hardsigmoid({0})"
    # x + 3: add; with 0 and with 6: cmp 2; by 6: mul, as by a constant
    forward = Ops(add=1, cmp=2, mul=1)
    # 0 outside −3 and 3: cmp 2; between them dy/6: mul
    backward = Ops(cmp=2, mul=1)

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("HardSigmoid", *inputs, alpha=1 / 6, beta=0.5)


@frozen
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


def onnx_gelu(at: LayerPlace, values: str) -> str:
    """Operator set 17 has no GELU."""
    part = at.step("Erf", at.step("Div", values, at.constant("root", sqrt(2))))
    both_sides = at.step("Add", part, at.constant("one", 1.0))
    return at.step("Mul", at.step("Mul", values, both_sides), at.constant("half", 0.5))


def onnx_silu(at: LayerPlace, values: str) -> str:
    """ONNX has the sigmoid alone."""
    return at.step("Mul", values, at.step("Sigmoid", values))
