"""Fully connected layers, and the tables of a text network: of its symbols, and of its positions.

Closed forms: d features of one position, of T.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from math import prod, sqrt

from nas.frozen import frozen
from nas.layers.layer import (
    LATER,
    WIDE,
    Footprint,
    Layer,
    LayerPlace,
    Read,
    Start,
    TorchLine,
    Uniform,
    product_costs,
    product_footprint,
    text_start,
    torch_options,
)
from nas.layers.shapes import Shape, refuse_no_sizes, sequence, symbols, vector
from nas.ops import Cost, Ops


@frozen
class Dense(Layer):
    """A fully connected layer of a vector. Weight: (features, features in)."""

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
        return product_costs("dense", inputs[0][0] * self.features, self.bias * self.features)

    def widened(self, width: int) -> Dense:
        return replace(self, features=width)

    def start(self, tensor: str, *inputs: Shape) -> Start:
        """Uniform by the fan in, as PyTorch's own dense layers begin."""
        return Uniform(1 / sqrt(prod(inputs[0])))

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return product_footprint(narrow, reads[0])

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return _nn_linear(inputs[0][-1], self.features, self.bias)

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        tensors = [at.weight(name) for name in ("weight", "bias") if name in at.weights]
        at.last("Gemm", inputs[0], *tensors, transB=1)


@frozen(repr=False)
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
        macs, sums = prod(inputs[0]) * self.features, inputs[0][0] * self.features
        return product_costs("linear", macs, self.bias * sums)

    def widened(self, width: int) -> Linear:
        return replace(self, features=width)

    def start(self, tensor: str, *inputs: Shape) -> Start:
        return text_start(tensor)

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return product_footprint(narrow, reads[0])

    def torch_line(self, *inputs: Shape) -> TorchLine:
        if self.tied:
            bias = ", {own}" if self.bias else ""
            made = f"nn.Parameter(torch.empty({self.features}))" if self.bias else ""
            return TorchLine(f"F.linear({{0}}, {{table}}.weight{bias})", made)
        return _nn_linear(inputs[0][-1], self.features, self.bias)

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        if self.tied:
            weight = at.step("Transpose", at.table, perm=(1, 0))
        else:
            weight = at.constant("weight", at.weights["weight"].T)
        if not self.bias:
            return at.last("MatMul", inputs[0], weight)
        return at.last("Add", at.step("MatMul", inputs[0], weight), at.weight("bias"))


@frozen
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
        return text_start(tensor)

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return Footprint(WIDE)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("{own}({0})", f"nn.Embedding({self.symbols}, {self.features})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Gather", at.weight("weight"), inputs[0])


@frozen
class Positions(Layer):
    """Learned numbers for each position, added to the values there. Weight: (positions, features)."""

    frees_output = True

    def shape(self, *inputs: Shape) -> Shape:
        return sequence(self, inputs)

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        return {"weight": inputs[0]}

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        sums = Ops(add=prod(inputs[0]))
        return {"positions": Cost(forward=sums, weight_grad=sums, evaluate=sums)}

    def start(self, tensor: str, *inputs: Shape) -> Start:
        return text_start(tensor)

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return Footprint(WIDE, passes_on=reads[0].width == WIDE)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        made = f"nn.Parameter(torch.empty({inputs[0][0]}, {inputs[0][1]}))"
        return TorchLine("{0} + {own}[: {0}.shape[1]]", made)

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Add", inputs[0], at.weight("weight"))


def _nn_linear(read: int, features: int, bias: bool) -> TorchLine:
    options = torch_options((bias, True, "bias=False"))
    return TorchLine("{own}({0})", f"nn.Linear({read}, {features}{options})")
