"""The tensors of a network as plain arrays: how they start, and their fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.graph import Graph
from nas.layers import Layer, Shape
from nas.layers.layer import Constant, Normal, Uniform

Array = NDArray[Any]
Weights = Mapping[str, Array]
"""Parameters and statistics as "node.tensor". fp32 in files; fp64 is carried as well."""


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


def starts(
    layer: Layer, tensor: str, shape: Shape, reads: tuple[Shape, ...], rng: np.random.Generator
) -> Array:
    """Values at the start for `shape`, which is that of the whole tensor or of some of its rows, fp32.

    Raises MissingReading where the layer does not state them.
    """
    match layer.start(tensor, *reads):
        case Constant(value):
            return np.full(shape, value, np.float32)
        case Normal(deviation):
            values = rng.standard_normal(shape, dtype=np.float32)
            values *= np.float32(deviation)
            return values
        case Uniform(limit):
            bound = np.float32(limit)
            values = rng.random(shape, dtype=np.float32)
            values *= 2 * bound
            values -= bound
            return values


def digest(weights: Weights) -> str:
    """SHA-256 over names, types, shapes and values, whatever the order of the names."""
    hashed = hashlib.sha256()
    for name in sorted(weights):
        values = np.ascontiguousarray(weights[name])
        hashed.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        hashed.update(values.data)
    return hashed.hexdigest()
