"""A layer in a few words."""

from __future__ import annotations

from dataclasses import fields
from functools import singledispatch

from aiperf.wording import spoken
from nas.layers import (
    AdaptiveAveragePool,
    Attention,
    AveragePool,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Embedding,
    Experts,
    Layer,
    LayerNorm,
    Linear,
    MaxPool,
    RMSNorm,
)
from nas.layers.windows import both

SPELT = {"ReLU", "ReLU6", "GELU", "SiLU", "RMSNorm"}


@singledispatch
def words(layer: Layer) -> str:
    """A layer in a few words: its kind and what was chosen of it."""
    chosen = [getattr(layer, each.name) for each in fields(layer)]
    shown = [f"{value:g}" for value in chosen if type(value) in (int, float)]
    return " ".join([kind_of(layer), *shown])


def kind_of(layer: Layer) -> str:
    name = type(layer).__name__
    return name if name in SPELT else spoken(name)


@words.register(RMSNorm)
@words.register(LayerNorm)
def _(layer: RMSNorm | LayerNorm) -> str:
    return kind_of(layer)


@words.register
def _(layer: Conv2d) -> str:
    groups = f" in {layer.groups} groups" if layer.groups > 1 else ""
    return f"{_sides(layer.kernels)} conv {layer.channels}{groups}{_stride(layer.strides)}{_dilation(layer)}"


@words.register
def _(layer: DepthwiseConv2d) -> str:
    return f"{_sides(layer.kernels)} depthwise{_stride(layer.strides)}{_dilation(layer)}"


@words.register(MaxPool)
@words.register(AveragePool)
def _(layer: MaxPool | AveragePool) -> str:
    kind = "max pool" if isinstance(layer, MaxPool) else "average pool"
    return f"{_sides(layer.kernels)} {kind}{_stride(layer.strides)}"


@words.register
def _(layer: AdaptiveAveragePool) -> str:
    return f"average pool to {_sides(both(layer.size))}"


@words.register(Dense)
@words.register(Linear)
def _(layer: Dense | Linear) -> str:
    tied = ", tied" if isinstance(layer, Linear) and layer.tied else ""
    return f"{kind_of(layer)} {layer.features}{tied}"


@words.register
def _(layer: Embedding) -> str:
    return f"embedding {layer.features}"


@words.register
def _(layer: Attention) -> str:
    groups = f", {layer.groups} groups" if layer.groups < layer.heads else ""
    window = f", window {layer.window}" if layer.window else ""
    return f"attention {layer.heads} heads{groups}{window}{', head norm' if layer.head_norm else ''}"


@words.register
def _(layer: Experts) -> str:
    return f"experts {layer.chosen} of {layer.experts}, {layer.hidden}"


def _sides(sides: tuple[int, int]) -> str:
    return f"{sides[0]}×{sides[1]}"


def _dilation(layer: Conv2d | DepthwiseConv2d) -> str:
    if layer.dilations == (1, 1):
        return ""
    down, right = layer.dilations
    return f" dilated {down}" if down == right else f" dilated {_sides(layer.dilations)}"


def _stride(strides: tuple[int, int]) -> str:
    if strides == (1, 1):
        return ""
    return f" /{strides[0]}" if strides[0] == strides[1] else f" /{_sides(strides)}"
