"""Layers of sequences in operators of ONNX."""

from __future__ import annotations

from math import sqrt

import numpy as np

from nas.layers import (
    GELU,
    Attention,
    Embedding,
    Experts,
    LayerNorm,
    Linear,
    Positions,
    Product,
    RMSNorm,
    SiLU,
    SquaredReLU,
)
from nas.portable.onnx_draft import LayerPlace, write


@write.register
def _(layer: Embedding, at: LayerPlace, *inputs: str) -> None:
    at.last("Gather", at.weight("weight"), inputs[0])


@write.register
def _(layer: Linear, at: LayerPlace, *inputs: str) -> None:
    weight = at.constant("weight", at.weights["weight"].T)
    if not layer.bias:
        return at.last("MatMul", inputs[0], weight)
    return at.last("Add", at.step("MatMul", inputs[0], weight), at.weight("bias"))


@write.register
def _(layer: Positions, at: LayerPlace, *inputs: str) -> None:
    at.last("Add", inputs[0], at.weight("weight"))


@write.register
def _(layer: LayerNorm, at: LayerPlace, *inputs: str) -> None:
    tensors = [at.weight("weight"), at.weight("bias")]
    at.last("LayerNormalization", inputs[0], *tensors, epsilon=layer.epsilon)


@write.register
def _(layer: RMSNorm, at: LayerPlace, *inputs: str) -> None:
    squares = at.step("ReduceMean", at.step("Mul", inputs[0], inputs[0]), axes=(-1,))
    root = at.step("Sqrt", at.step("Add", squares, at.constant("epsilon", layer.epsilon)))
    at.last("Mul", at.step("Div", inputs[0], root), at.weight("weight"))


@write.register
def _(layer: GELU, at: LayerPlace, *inputs: str) -> None:
    at.last("Identity", _gelu(at, inputs[0]))


@write.register
def _(layer: SiLU, at: LayerPlace, *inputs: str) -> None:
    at.last("Identity", _silu(at, inputs[0]))


@write.register
def _(layer: SquaredReLU, at: LayerPlace, *inputs: str) -> None:
    positive = at.step("Relu", inputs[0])
    at.last("Mul", positive, positive)


def _gelu(at: LayerPlace, values: str) -> str:
    part = at.step("Erf", at.step("Div", values, at.constant("root", sqrt(2))))
    both_sides = at.step("Add", part, at.constant("one", 1.0))
    return at.step("Mul", at.step("Mul", values, both_sides), at.constant("half", 0.5))


def _silu(at: LayerPlace, values: str) -> str:
    return at.step("Mul", values, at.step("Sigmoid", values))


@write.register
def _(layer: Attention, at: LayerPlace, *inputs: str) -> None:
    positions, width = at.reads[0][0], at.reads[0][1] // layer.heads
    times = layer.heads // layer.groups

    def heads(values: str, name: str, num: int) -> str:
        """(batch, positions, num · width) to (batch, groups, num / groups, positions, width)"""
        shape = at.constant(f"heads of {name}", [0, positions, layer.groups, num // layer.groups, width])
        return at.step("Transpose", at.step("Reshape", values, shape), perm=(0, 2, 3, 1, 4))

    q = heads(inputs[0], "q", layer.heads)
    k, v = (heads(values, name, layer.groups) for values, name in zip(inputs[1:], "kv"))
    if layer.rotary:
        angles = np.outer(np.arange(positions), layer.rotary ** (-np.arange(0, width, 2) / width))
        cos, sin = at.constant("cos", np.cos(angles)), at.constant("sin", np.sin(angles))
        q, k = _turned(at, q, cos, sin), _turned(at, k, cos, sin)
    # A group's one key and value meet all its queries by broadcasting.
    scores = at.step("MatMul", q, at.step("Transpose", k, perm=(0, 1, 2, 4, 3)))
    scores = at.step("Mul", scores, at.constant("scale", 1 / sqrt(width)))
    mask = np.triu(np.full((positions, positions), -np.inf), k=1)
    shares = at.step("Softmax", at.step("Add", scores, at.constant("mask", mask)), axis=-1)
    mixed = at.step("Transpose", at.step("MatMul", shares, v), perm=(0, 3, 1, 2, 4))
    at.last("Reshape", mixed, at.constant("shape", [0, positions, layer.groups * times * width]))


def _turned(at: LayerPlace, values: str, cos: str, sin: str) -> str:
    """Pairs of the first and the second half of a head, by their position."""
    first, second = at.steps("Split", 2, values, axis=-1)
    left = at.step("Sub", at.step("Mul", first, cos), at.step("Mul", second, sin))
    right = at.step("Add", at.step("Mul", first, sin), at.step("Mul", second, cos))
    return at.step("Concat", left, right, axis=-1)


@write.register
def _(layer: Experts, at: LayerPlace, *inputs: str) -> None:
    """Every expert makes something of every position, and the shares of those not chosen are 0. ONNX cannot
    sort rows by their expert, so that this does experts / chosen times the work."""
    positions, features = at.reads[0]
    rows = at.step("Reshape", inputs[0], at.constant("rows", [-1, features]))
    scores = at.step("MatMul", rows, at.constant("router", at.weights["router"].T))
    balanced = at.step("Add", scores, at.weight("balance"))
    _, which = at.steps("TopK", 2, balanced, at.constant("chosen", [layer.chosen]), axis=1)
    shares = at.step("Softmax", at.step("GatherElements", scores, which, axis=1), axis=1)
    none = at.step("ConstantOfShape", at.step("Shape", scores))
    shares = at.step("Transpose", at.step("ScatterElements", none, which, shares, axis=1), perm=(1, 0))

    def by_expert(values: str, tensor: str) -> str:
        """(experts, rows, features out)"""
        return at.step("MatMul", values, at.constant(tensor, at.weights[tensor].swapaxes(1, 2)))

    hidden = by_expert(rows, "up")
    hidden = at.step("Mul", _silu(at, by_expert(rows, "gate")), hidden) if layer.gated else _gelu(at, hidden)
    weighed = at.step(
        "Mul", by_expert(hidden, "down"), at.step("Unsqueeze", shares, at.constant("features", [2]))
    )
    mixed = at.step("ReduceSum", weighed, at.constant("experts", [0]), keepdims=0)
    at.last("Reshape", mixed, at.constant("shape", [-1, positions, features]))


@write.register
def _(layer: Product, at: LayerPlace, *inputs: str) -> None:
    at.last("Mul", *inputs)
