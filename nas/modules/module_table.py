"""The table of modules: what computes a layer, whichever file says it.

Two modules are here and not with the others, because the network sets them up: what they do depends on their
neighbours.
"""

from __future__ import annotations

from functools import singledispatch

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from nas.layers import Layer, MissingReading, Shape


@singledispatch
def module_of(layer: Layer, *inputs: Shape) -> nn.Module:
    """The module that computes `layer`; `inputs` are the shapes it reads, without the batch.

    Its parameters and buffers carry the names of `layer.weights` and `layer.statistics`. Raises
    MissingReading where none is registered.
    """
    kind = type(layer).__name__
    raise MissingReading(f"{kind} has no torch module; register one with nas.modules.module_of")


class Sum(nn.Module):
    """The sum of two or more tensors. All have one shape."""

    inplace = False
    """Whether it may be made in the memory of the first; set by the network, as that of a ReLU."""

    def forward(self, first: Tensor, second: Tensor, *others: Tensor) -> Tensor:
        # In place only where it does not round the sum to a narrower type than a new tensor would have.
        in_place = self.inplace and first.dtype == second.dtype
        total = first.add_(second) if in_place else first + second
        for other in others:
            total = total + other
        return total


class Tied(nn.Module):
    """Computes with the weight of an embedding, which remains that module's own."""

    embedding: tuple[nn.Module] | None = None
    """Set by the network. In a tuple, so that its weight is not a parameter of two modules."""

    def __init__(self, features: int, bias: bool) -> None:
        """The weight is (features, features of the embedding), and the embedding's own; only the bias is this
        module's."""
        super().__init__()
        self.bias = nn.Parameter(torch.empty(features)) if bias else None

    def forward(self, values: Tensor) -> Tensor:
        assert self.embedding is not None, "a tied layer belongs to a network"
        return linear(values, self.embedding[0].weight, self.bias)  # type: ignore[arg-type]
