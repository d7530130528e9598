"""The table of modules: what computes a layer, whichever file says it."""

from __future__ import annotations

from functools import singledispatch

from torch import nn

from nas.layers import Layer, MissingReading, Shape


@singledispatch
def module_of(layer: Layer, *inputs: Shape) -> nn.Module:
    """The module that computes `layer`; `inputs` are the shapes it reads, without the batch.

    Its parameters and buffers carry the names of `layer.weights` and `layer.statistics`. Raises
    MissingReading where none is registered.
    """
    kind = type(layer).__name__
    raise MissingReading(f"{kind} has no torch module; register one with nas.modules.module_of")
