"""A network in the operators of ONNX, as plain values: what is written so far, and where a layer writes it.

Operator set 17: old enough for every program that reads ONNX today. What that set lacks (GELU, RMSNorm,
attention, rotary positions, a mixture of experts) is written in its arithmetic. https://onnx.ai/onnx/operators
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.layers.shapes import Shape

Array = NDArray[Any]

OPERATOR_SET = 17


@dataclass(frozen=True)
class Operator:
    """One node of ONNX."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass
class Written:
    """What has been written so far: operators in order, and the tensors that they read."""

    tensors: dict[str, Array] = field(default_factory=dict)
    operators: list[Operator] = field(default_factory=list)


@dataclass(frozen=True)
class LayerPlace:
    """Where a layer writes: the names under which its tensors and what it computes stand."""

    draft: Written
    own: str
    """The name of the layer's output."""
    weights: Mapping[str, Array]
    """The layer's tensors, by name."""
    reads: tuple[Shape, ...]
    table: str = ""
    """The name of the weight of the embedding that the layer computes with, if it does."""

    def weight(self, tensor: str) -> str:
        """The name of one of the layer's tensors, which is written into the file."""
        return self.constant(tensor, self.weights[tensor])

    def constant(self, name: str, values: Any) -> str:
        """The name of a tensor that is written into the file: fp32, and int64 for whole numbers."""
        array = np.asarray(values)
        name = f"{self.own}.{name}"
        self.draft.tensors[name] = array.astype(np.int64 if array.dtype.kind == "i" else np.float32)
        return name

    def step(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """The name of what an operator on the way puts out."""
        return self.steps(kind, 1, *inputs, **attributes)[0]

    def steps(self, kind: str, num: int, *inputs: str, **attributes: Any) -> tuple[str, ...]:
        """The names of the so many tensors that an operator on the way puts out."""
        number = len(self.draft.operators)
        outputs = tuple(f"{self.own}.{number}.{place}" for place in range(num))
        self.draft.operators.append(Operator(kind, inputs, outputs, attributes))
        return outputs

    def last(self, kind: str, *inputs: str, **attributes: Any) -> None:
        """Writes the operator that puts out what the layer does."""
        self.draft.operators.append(Operator(kind, inputs, (self.own,), attributes))
