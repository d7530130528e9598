"""Layers that take every position of a sequence by itself.

Closed forms: d features of one position, of T. Norms divide and take a root for each position, so that these
are counted, unlike those of a batch norm, which are made once for a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

from nas.layers.footprint import WIDE, Footprint, Read, of_product
from nas.layers.initial_values import Constant, Start, of_text
from nas.layers.layer import Layer
from nas.layers.shapes import Shape, ShapeError, refuse_no_sizes, sequence, symbols
from nas.layers.torch_line import TorchLine, options
from nas.layers.windows import LATER
from nas.ops import Cost, Ops

if TYPE_CHECKING:
    from nas.layers.onnx_place import LayerPlace


@dataclass(frozen=True)
class Embedding(Layer):
    """A row of features for each symbol: (positions,) to (positions, features). Weight: (symbols, features).

    Symbols are whole numbers from 0 to `symbols` − 1.
    """

    frees_output = True
    reads_symbols = True
    symbols: int
    features: int

    def __post_init__(self) -> None:
        refuse_no_sizes(self, "symbols", "features")

    def shape(self, *inputs: Shape) -> Shape:
        return (*symbols(self, inputs), self.features)

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        return {"weight": (self.symbols, self.features)}

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        # A row is read, not multiplied by; its gradient is added to that of its other positions: add d.
        return {"embedding": Cost(weight_grad=Ops(add=inputs[0][0] * self.features))}

    def start(self, tensor: str, *inputs: Shape) -> Start:
        return of_text(tensor)

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return Footprint(WIDE)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("{own}({0})", f"nn.Embedding({self.symbols}, {self.features})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Gather", at.weight("weight"), inputs[0])


@dataclass(frozen=True, repr=False)
class Linear(Layer):
    """A fully connected layer at each position by itself. Weight: (features, features in).

    If it is `tied`, it is the output, and has no weight: it computes with that of the one embedding of the
    network that has as many symbols as it has features (Press and Wolf, EACL 2017).
    """

    frees_output = True
    features: int
    bias: bool = False
    tied: bool = field(default=False, kw_only=True, metadata=LATER)

    def __post_init__(self) -> None:
        refuse_no_sizes(self, "features")

    def shape(self, *inputs: Shape) -> Shape:
        return (sequence(self, inputs)[0], self.features)

    def table(self, *inputs: Shape) -> Shape | None:
        return (self.features, inputs[0][1]) if self.tied else None

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        weight = {} if self.tied else {"weight": (self.features, inputs[0][1])}
        return {**weight, "bias": (self.features,)} if self.bias else weight

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        products = Ops(mac=prod(inputs[0]) * self.features)
        rows = {"linear": Cost(products, products, products, products)}
        if self.bias:
            sums = Ops(add=inputs[0][0] * self.features)
            rows["bias"] = Cost(forward=sums, weight_grad=sums, evaluate=sums)
        return rows

    def widened(self, width: int) -> Linear:
        return replace(self, features=width)

    def start(self, tensor: str, *inputs: Shape) -> Start:
        return of_text(tensor)

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return of_product(narrow, reads[0])

    def torch_line(self, *inputs: Shape) -> TorchLine:
        if self.tied:
            bias = ", {own}" if self.bias else ""
            made = f"nn.Parameter(torch.empty({self.features}))" if self.bias else ""
            return TorchLine(f"F.linear({{0}}, {{table}}.weight{bias})", made)
        bias = options((self.bias, True, "bias=False"))
        return TorchLine("{own}({0})", f"nn.Linear({inputs[0][-1]}, {self.features}{bias})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        if self.tied:
            weight = at.step("Transpose", at.table, perm=(1, 0))
        else:
            weight = at.constant("weight", at.weights["weight"].T)
        if not self.bias:
            return at.last("MatMul", inputs[0], weight)
        return at.last("Add", at.step("MatMul", inputs[0], weight), at.weight("bias"))


@dataclass(frozen=True)
class Positions(Layer):
    """Learned numbers for each position, added to what stands there. Weight: (positions, features)."""

    frees_output = True

    def shape(self, *inputs: Shape) -> Shape:
        return sequence(self, inputs)

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        return {"weight": inputs[0]}

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        sums = Ops(add=prod(inputs[0]))
        return {"positions": Cost(forward=sums, weight_grad=sums, evaluate=sums)}

    def start(self, tensor: str, *inputs: Shape) -> Start:
        return of_text(tensor)

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return Footprint(WIDE, passes_on=reads[0].width == WIDE)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        made = f"nn.Parameter(torch.empty({inputs[0][0]}, {inputs[0][1]}))"
        return TorchLine("{0} + {own}[: {0}.shape[1]]", made)

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Add", inputs[0], at.weight("weight"))


@dataclass(frozen=True)
class RMSNorm(Layer):
    """x / √(mean(x²) + ε), times a learned scale (Zhang and Sennrich, NeurIPS 2019). Weight: (features,)."""

    frees_output = True
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        refuse_no_epsilon(self, self.epsilon)

    def shape(self, *inputs: Shape) -> Shape:
        return sequence(self, inputs)

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        return {"weight": inputs[0][1:]}

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        return {"rms_norm": scaling(*inputs[0])}

    def start(self, tensor: str, *inputs: Shape) -> Start:
        return Constant(1)

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        """Step by step on a processor: what is normalised and not yet scaled is kept, too."""
        wide = WIDE * reads[0].num
        return Footprint(WIDE, (0,), inside=wide + WIDE * reads[0].shape[0], backward=wide)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("{own}({0})", f"nn.RMSNorm({inputs[0][1]}, eps={self.epsilon!r})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        squares = at.step("ReduceMean", at.step("Mul", inputs[0], inputs[0]), axes=(-1,))
        root = at.step("Sqrt", at.step("Add", squares, at.constant("epsilon", self.epsilon)))
        at.last("Mul", at.step("Div", inputs[0], root), at.weight("weight"))


@dataclass(frozen=True)
class LayerNorm(Layer):
    """(x − mean) / √(variance + ε), with learned scale and shift (Ba et al., arXiv:1607.06450).

    Weight and bias: (features,).
    """

    frees_output = True
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        refuse_no_epsilon(self, self.epsilon)

    def shape(self, *inputs: Shape) -> Shape:
        return sequence(self, inputs)

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        features = inputs[0][1:]
        return {"weight": features, "bias": features}

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        return {"layer_norm": normalising(*inputs[0])}

    def start(self, tensor: str, *inputs: Shape) -> Start:
        return Constant({"weight": 1, "bias": 0}[tensor])

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return Footprint(reads[0].width, (0,), inside=2 * WIDE * reads[0].shape[0])

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("{own}({0})", f"nn.LayerNorm({inputs[0][1]}, eps={self.epsilon!r})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        tensors = [at.weight("weight"), at.weight("bias")]
        at.last("LayerNormalization", inputs[0], *tensors, epsilon=self.epsilon)


def scaling(rows: int, d: int) -> Cost:
    """What a norm by the mean of squares, with a scale, makes of so many rows of d numbers each."""
    # x²: mul d; their mean: add d − 1, div; + ε: add; root: sqrt; its inverse r: div; x̂ = x·r: mul d;
    # scale: mul d
    forward = Ops(mul=3 * d, add=d, div=2, sqrt=1)
    # dx = r·(g − x̂·mean(g·x̂)) with g = dy·w. g: mul d; g·x̂: mul d; mean: add d − 1, div; times x̂: mul d;
    # difference: add d; times r: mul d
    input_grad = Ops(mul=4 * d, add=2 * d - 1, div=1)
    # Σ dy·x̂: mul d, add d
    weight_grad = Ops(mul=d, add=d)
    return _each(rows, forward, input_grad, weight_grad)


def normalising(rows: int, d: int) -> Cost:
    """What a norm with mean, variance, scale and shift makes of so many rows of d numbers each."""
    # mean: add d − 1, div; x − mean: add d; variance: mul d, add d − 1, div; + ε: add; root: sqrt; its
    # inverse r: div; x̂: mul d; scale: mul d; shift: add d
    forward = Ops(mul=3 * d, add=4 * d - 1, div=3, sqrt=1)
    # dx = r·(g − mean(g) − x̂·mean(g·x̂)) with g = dy·w. g: mul d; mean(g): add d − 1, div; g·x̂: mul d; its
    # mean: add d − 1, div; times x̂: mul d; differences: add 2d; times r: mul d
    input_grad = Ops(mul=4 * d, add=4 * d - 2, div=2)
    # Σ dy·x̂: mul d, add d; Σ dy: add d
    weight_grad = Ops(mul=d, add=2 * d)
    return _each(rows, forward, input_grad, weight_grad)


def _each(positions: int, forward: Ops, input_grad: Ops, weight_grad: Ops) -> Cost:
    """The cost of one position, at all of them. Validation is as forward."""
    once = (forward, input_grad, weight_grad, forward)
    return Cost(*[ops * positions for ops in once])


def refuse_no_epsilon(layer: object, epsilon: object) -> None:
    """Raises ShapeError unless it is a number between 0 and 1."""
    if type(epsilon) is not float or not 0 < epsilon < 1:
        raise ShapeError(f"{type(layer).__name__}: epsilon {epsilon!r:.40} is not between 0 and 1")
