"""The file kept for a trial: weights, statistics, momentum and architecture of its best validation.

safetensors, never pickle: a file that somebody else sent can be opened safely.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from aiperf.errors import DataError
from nas.bounded import opened
from nas.graph import Graph
from nas.layers import ShapeError
from nas.record import RecordError, graph_from_json, graph_to_json

_WEIGHTS, _MOMENTUM = "weights/", "momentum/"


@dataclass(frozen=True)
class Kept:
    """A network at rest: float32 arrays by "node.tensor"."""

    graph: Graph
    weights: Mapping[str, np.ndarray]
    """Trained tensors and running statistics."""
    momentum: Mapping[str, np.ndarray]
    """Of the trained tensors; empty before the first step."""


def write_kept(path: Path, kept: Kept) -> str:
    """Writes the file whole or not at all, and returns its SHA-256. Raises OSError, also where the run
    directory is gone: nothing is to take the place of one that was renamed."""
    tensors = {_WEIGHTS + name: np.ascontiguousarray(array) for name, array in kept.weights.items()}
    tensors |= {_MOMENTUM + name: np.ascontiguousarray(array) for name, array in kept.momentum.items()}
    content = save(tensors, metadata={"graph": json.dumps(graph_to_json(kept.graph))})
    path.parent.mkdir(exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return hashlib.sha256(content).hexdigest()


def read_kept(path: Path) -> Kept:
    """Raises DataError for a file that is absent, damaged, or does not fit its own architecture."""
    kept = read_any_kept(path)
    found = {name: array.shape for name, array in kept.weights.items()}
    if found != {**kept.graph.weights, **kept.graph.statistics}:
        raise DataError(f"{path}: the kept weights do not fit the architecture beside them")
    return kept


def read_any_kept(path: Path) -> Kept:
    """The same, whatever its arrays are of. Raises DataError for a file that is absent or damaged."""
    try:
        opened(path).close()  # the library would wait for a pipe
        with safe_open(path, framework="numpy") as file:
            graph = graph_from_json((file.metadata() or {}).get("graph", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, RecordError, ShapeError) as error:
        raise DataError(f"{path}: the kept weights cannot be read ({error})") from None
    return Kept(graph, _under(_WEIGHTS, tensors), _under(_MOMENTUM, tensors))


def _under(prefix: str, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name[len(prefix) :]: array for name, array in tensors.items() if name.startswith(prefix)}
