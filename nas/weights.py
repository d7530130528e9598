"""The tensors of a network as plain arrays: how they start, and their fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import singledispatch
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.graph import Graph
from nas.layers import (
    BatchNorm,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Embedding,
    Experts,
    Layer,
    LayerNorm,
    Linear,
    Positions,
    RMSNorm,
    Shape,
)

Array = NDArray[Any]
Weights = Mapping[str, Array]
"""Parameters and statistics as "node.tensor". fp32 in files; fp64 is carried as well."""

TEXT_DEVIATION = 0.02
"""Standard deviation of every matrix of a text network at the start, as in the code of Radford et al.,
"Language Models are Unsupervised Multitask Learners", 2019. A layer does not know how deep its network is, so
those that write into the trunk are not made smaller by the square root of the depth."""


def initial(graph: Graph, seed: int) -> dict[str, Array]:
    """Parameters and statistics of an untrained network, fp32.

    A tensor depends on `seed` and on its own name alone, not on the order or the number of the others.
    """
    found = {}
    for node in graph.nodes:
        reads = graph.reads(node)
        tensors = {**node.layer.weights(*reads), **node.layer.statistics(*reads)}
        for tensor, shape in tensors.items():
            name = f"{node.name}.{tensor}"
            found[name] = starts(node.layer, tensor, shape, reads, generator(seed, name))
    return found


def generator(seed: int, name: str) -> np.random.Generator:
    """A stream of random numbers of its own for every name."""
    hashed = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(hashed[:16], "big")))


@singledispatch
def starts(
    layer: Layer, tensor: str, shape: Shape, reads: tuple[Shape, ...], rng: np.random.Generator
) -> Array:
    """Values at the start for `shape`, which is that of the whole tensor or of some of its rows, fp32."""
    raise NotImplementedError(f"no starting values for {tensor!r} of {type(layer).__name__}")


@starts.register
def _conv(
    layer: Conv2d, tensor: str, shape: Shape, reads: tuple[Shape, ...], rng: np.random.Generator
) -> Array:
    if tensor == "bias":
        return np.zeros(shape, np.float32)
    # He et al., "Delving Deep into Rectifiers", ICCV 2015, by the fan out, as torchvision's ResNet.
    deviation = sqrt(2 / (layer.channels * prod(layer.kernels)))
    values = rng.standard_normal(shape, dtype=np.float32)
    values *= np.float32(deviation)
    return values


@starts.register
def _depthwise(
    layer: DepthwiseConv2d, tensor: str, shape: Shape, reads: tuple[Shape, ...], rng: np.random.Generator
) -> Array:
    return starts(layer.convolution(*reads), tensor, shape, reads, rng)


@starts.register
def _dense(
    layer: Dense, tensor: str, shape: Shape, reads: tuple[Shape, ...], rng: np.random.Generator
) -> Array:
    bound = np.float32(1 / sqrt(prod(reads[0])))
    values = rng.random(shape, dtype=np.float32)
    values *= 2 * bound
    values -= bound
    return values


@starts.register
def _batch_norm(
    layer: BatchNorm, tensor: str, shape: Shape, reads: tuple[Shape, ...], rng: np.random.Generator
) -> Array:
    value = {"weight": 1, "bias": 0, "running_mean": 0, "running_var": 1}[tensor]
    return np.full(shape, value, np.float32)


@starts.register(Linear)
@starts.register(Embedding)
@starts.register(Positions)
@starts.register(Experts)
def _of_text(
    layer: Layer, tensor: str, shape: Shape, reads: tuple[Shape, ...], rng: np.random.Generator
) -> Array:
    if tensor in ("bias", "balance"):
        return np.zeros(shape, np.float32)
    values = rng.standard_normal(shape, dtype=np.float32)
    values *= np.float32(TEXT_DEVIATION)
    return values


@starts.register(LayerNorm)
@starts.register(RMSNorm)
def _norm(
    layer: Layer, tensor: str, shape: Shape, reads: tuple[Shape, ...], rng: np.random.Generator
) -> Array:
    return np.full(shape, {"weight": 1, "bias": 0}[tensor], np.float32)


def digest(weights: Weights) -> str:
    """SHA-256 over names, types, shapes and values, whatever the order of the names."""
    hashed = hashlib.sha256()
    for name in sorted(weights):
        values = np.ascontiguousarray(weights[name])
        hashed.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        hashed.update(values.data)
    return hashed.hexdigest()
