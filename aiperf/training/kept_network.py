"""The file kept for a trial: weights, statistics, optimizer state and architecture of its best validation.

safetensors, never pickle: a file that somebody else sent can be opened safely.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from aiperf.errors import DataError
from aiperf.os_error import is_of_system, unreadable
from nas.bounded import opened
from nas.frozen import frozen
from nas.graph import Graph
from nas.layers import ShapeError
from nas.morphisms import Morphism
from nas.morphisms.morphism import MOMENTUM, SQUARES, STEPS
from nas.record import RecordError, graph_from_json, graph_to_json

_WEIGHTS = "weights"
"""Kind of the arrays in a file that are the network's own."""
POWERS: Mapping[str, int] = {
    "momentum": MOMENTUM,
    "exp_avg": MOMENTUM,
    "exp_avg_sq": SQUARES,
    "step": STEPS,
}
"""Kinds of optimizer state, and the power with which each follows a factor on the gradient: that of SGD, and
the three of AdamW."""


@frozen
class Kept:
    """A network at rest: float32 arrays by "node.tensor"."""

    graph: Graph
    weights: Mapping[str, np.ndarray]
    """Trained tensors and running statistics, by "node.tensor"."""
    state: Mapping[str, Mapping[str, np.ndarray]]
    """The optimizer's state by kind: for each trained tensor an array of its shape, or its number of steps,
    (). With muon each tensor has its own kinds. Empty before the first step."""

    def grown(self, morphism: Morphism) -> Kept:
        """What a child of this network starts from. The optimizer's state is carried as well, each kind with
        its power in POWERS."""
        state = {
            kind: morphism.carry_state(self.graph, self._of_all(arrays, POWERS[kind]), POWERS[kind])
            for kind, arrays in self.state.items()
        }
        return Kept(morphism.apply(self.graph), morphism.carry(self.graph, self.weights), state)

    def _of_all(self, arrays: Mapping[str, np.ndarray], power: int) -> dict[str, np.ndarray]:
        """The arrays of all tensors, with zeros for those that have no state of this kind, because the
        child's may need one."""
        kind = next(iter(arrays.values())).dtype
        return {
            name: arrays[name] if name in arrays else np.zeros(() if power == STEPS else shape, kind)
            for name, shape in self.graph.weights.items()
        }


def write_kept(path: Path, kept: Kept) -> str:
    """Writes the file whole or not at all, and returns its SHA-256. Raises OSError, also where the run
    directory is gone: nothing is to take the place of one that was renamed."""
    tensors = {
        f"{kind}/{name}": np.asarray(array, order="C")
        for kind, arrays in {_WEIGHTS: kept.weights, **kept.state}.items()
        for name, array in arrays.items()
    }
    content = save(tensors, metadata={"graph": json.dumps(graph_to_json(kept.graph))})
    path.parent.mkdir(exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return hashlib.sha256(content).hexdigest()


def plain_file(tensors: Mapping[str, np.ndarray]) -> bytes:
    """Tensors under these names and nothing else, in the form of safetensors."""
    return save({name: np.asarray(array, order="C") for name, array in tensors.items()})


def read_kept(path: Path) -> Kept:
    """Raises DataError for a file that is absent, damaged, or does not fit its own architecture."""
    kept = read_any_kept(path)
    found = {name: array.shape for name, array in kept.weights.items()}
    if found != {**kept.graph.weights, **kept.graph.statistics}:
        raise DataError(f"{path}: the kept weights do not fit the architecture beside them")
    return kept


def read_any_kept(path: Path) -> Kept:
    """The same for arrays of any names and shapes, as a pretended trial keeps them. Raises DataError for a
    file that is absent or damaged."""
    try:
        opened(path).close()  # the library would wait for a pipe
        with safe_open(path, framework="numpy") as file:
            graph = graph_from_json((file.metadata() or {}).get("graph", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, RecordError, ShapeError) as error:
        if isinstance(error, OSError) and is_of_system(error):
            raise DataError(f"the kept weights {unreadable(error, path, 'put the file back')}") from None
        raise DataError(f"{path}: the kept weights cannot be read ({error})") from None
    found = {kind: _under(f"{kind}/", tensors) for kind in (_WEIGHTS, *POWERS)}
    return Kept(graph, found.pop(_WEIGHTS), {kind: arrays for kind, arrays in found.items() if arrays})


def _under(prefix: str, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose names begin with the prefix, without it."""
    return {name[len(prefix) :]: array for name, array in tensors.items() if name.startswith(prefix)}
