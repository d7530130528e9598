"""Activations of transformers and of networks for small devices: each takes every element by itself.

Closed forms: x elements. What the forward pass has put out on its way (Φ, σ, the rectified x) is not counted
again in the backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod, sqrt
from typing import TYPE_CHECKING

from nas.layers.footprint import Footprint, Read, keeps_input
from nas.layers.layer import Layer
from nas.layers.shapes import Shape, only
from nas.layers.torch_line import TorchLine
from nas.ops import Cost, Ops

if TYPE_CHECKING:
    from nas.layers.onnx_place import LayerPlace


class Elementwise:
    """What layers share that take every element by itself, and whose backward pass needs what they read
    unless they say otherwise. No layer itself: a record could name it."""

    frees_output = True

    def shape(self, *inputs: Shape) -> Shape:
        return only(self, inputs)

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return keeps_input(reads[0])


@dataclass(frozen=True)
class GELU(Elementwise, Layer):
    """x·Φ(x) with Φ(x) = (1 + erf(x/√2))/2, exactly (Hendrycks and Gimpel, arXiv:1606.08415)."""

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        x = prod(inputs[0])
        # x/√2: mul; erf: exp; 1 + erf: add; half of it: mul; times x: mul
        forward = Ops(mul=3 * x, add=x, exp=x)
        # dy·(Φ + x·φ) with φ = exp(−x²/2)/√2π. x²: mul; times −1/2: mul; exp; by √2π: mul; times x: mul;
        # Φ + : add; times dy: mul
        return {"gelu": Cost(forward, Ops(mul=5 * x, add=x, exp=x), Ops(), forward)}

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("F.gelu({0})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Identity", onnx_gelu(at, inputs[0]))


@dataclass(frozen=True)
class SiLU(Elementwise, Layer):
    """x·σ(x) with σ(x) = 1/(1 + exp(−x)) (Elfwing et al., arXiv:1702.03118)."""

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        x = prod(inputs[0])
        forward = Ops(exp=x, add=x, div=x, mul=x)
        # dy·σ·(1 + x·(1 − σ)). 1 − σ: add; times x: mul; 1 + : add; times σ: mul; times dy: mul
        return {"silu": Cost(forward, Ops(mul=3 * x, add=2 * x), Ops(), forward)}

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("F.silu({0})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Identity", onnx_silu(at, inputs[0]))


@dataclass(frozen=True)
class SquaredReLU(Elementwise, Layer):
    """max(x, 0)² (So et al., "Primer", NeurIPS 2021)."""

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        x = prod(inputs[0])
        forward = Ops(cmp=x, mul=x)
        # dy·2·max(x, 0): mul, mul
        return {"squared_relu": Cost(forward, Ops(mul=2 * x), Ops(), forward)}

    def is_non_negative(self, *inputs: bool) -> bool:
        return True

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return Footprint(reads[0].width, inside=reads[0].bytes, backward=2 * reads[0].bytes)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("F.relu({0}).square()")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        positive = at.step("Relu", inputs[0])
        at.last("Mul", positive, positive)


@dataclass(frozen=True)
class HardSwish(Elementwise, Layer):
    """x·min(max(x + 3, 0), 6)/6 (Howard et al., "Searching for MobileNetV3", ICCV 2019)."""

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        x = prod(inputs[0])
        # x + 3: add; with 0 and with 6: cmp 2; by 6: mul, as by a constant; times x: mul
        forward = Ops(add=x, cmp=2 * x, mul=2 * x)
        # 0 below −3 and dy above 3: cmp 2; between them dy·(x/3 + 1/2): mul, add, mul
        return {"hard_swish": Cost(forward, Ops(add=x, cmp=2 * x, mul=2 * x), Ops(), forward)}

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("F.hardswish({0})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("HardSwish", *inputs)


@dataclass(frozen=True)
class HardSigmoid(Elementwise, Layer):
    """min(max(x + 3, 0), 6)/6, as in `HardSwish`."""

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        x = prod(inputs[0])
        # x + 3: add; with 0 and with 6: cmp 2; by 6: mul, as by a constant
        forward = Ops(add=x, cmp=2 * x, mul=x)
        # 0 outside −3 and 3: cmp 2; between them dy/6: mul
        return {"hard_sigmoid": Cost(forward, Ops(cmp=2 * x, mul=x), Ops(), forward)}

    def is_non_negative(self, *inputs: bool) -> bool:
        return True

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("F.hardsigmoid({0})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("HardSigmoid", *inputs, alpha=1 / 6, beta=0.5)


def onnx_gelu(at: LayerPlace, values: str) -> str:
    """Operator set 17 has no GELU."""
    part = at.step("Erf", at.step("Div", values, at.constant("root", sqrt(2))))
    both_sides = at.step("Add", part, at.constant("one", 1.0))
    return at.step("Mul", at.step("Mul", values, both_sides), at.constant("half", 0.5))


def onnx_silu(at: LayerPlace, values: str) -> str:
    """ONNX has the sigmoid alone."""
    return at.step("Mul", values, at.step("Sigmoid", values))
