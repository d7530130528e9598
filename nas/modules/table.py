"""The table of modules: what computes a layer, whichever file says it."""

from __future__ import annotations

from functools import singledispatch

from torch import nn

from nas.layers import Layer, Shape


@singledispatch
def module_of(layer: Layer, *inputs: Shape) -> nn.Module:
    """The module that computes `layer`; `inputs` are the shapes it reads, without the batch.

    Its parameters and buffers carry the names of `layer.weights` and `layer.statistics`.
    """
    raise NotImplementedError(f"no module is written for the layer {type(layer).__name__}")
