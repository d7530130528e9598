"""What a child's tensors take from its parent's, said once for values, gradients and optimizer state.

    value[i, j]    = factor · parent's value[rows[i], columns[j]]
    gradient[i, j] = gradient · parent's gradient[rows[i], columns[j]]

A first moment of the gradient (a momentum, Adam's m) then follows with `gradient`, Adam's v with its square,
and both begin at 0 where something is new. A number of steps is the tensor's, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nas.graph import Graph, Node
from nas.layers import Embedding, Linear, Shape
from nas.morphisms.carry import span
from nas.morphisms.channels import NEW, Index
from nas.morphisms.morphism import STEPS
from nas.weights import Array, Weights, generator, starts


@dataclass(frozen=True, eq=False)
class Taken:
    """A tensor with parts of the parent's tensor of the same name. An index is NEW where there is none."""

    rows: Index
    columns: Index | None = None
    """None for vectors."""
    factor: float = 1.0
    """Of the values."""
    gradient: float | None = 1.0
    """Of the gradient. None where it is no multiple of the parent's: the optimizer's state begins anew."""
    new_rows: float | None = None
    """What new rows start with; None: as those of an untrained layer."""
    new_columns: float | None = None

    def places(self) -> tuple[Any, Any]:
        """Of what is taken: the indices in the child's tensor and in the parent's."""
        axes = [self.rows] if self.columns is None else [self.rows, self.columns]
        kept = [np.flatnonzero(axis != NEW) for axis in axes]
        return _grid(kept), _grid([axis[some] for axis, some in zip(axes, kept)])


@dataclass(frozen=True)
class Growth:
    """A child, and all that must be known to carry a parent's tensors to it.

    A tensor that is not named here is the parent's own, or starts as that of an untrained layer.
    """

    child: Graph
    taken: Mapping[str, Taken] = field(default_factory=dict)
    constants: Mapping[str, float] = field(default_factory=dict)
    """Of wholly new tensors: what they are filled with."""
    seed: int = 0
    """Of random values."""

    def carried(self, parent: Graph, weights: Weights) -> dict[str, Array]:
        """Every parameter of the child, of the type of `weights`, computed in fp64 and rounded once.

        Statistics stay as they are: no edit adds a layer that has any.
        """
        kind = next(iter(weights.values())).dtype
        found: dict[str, Array] = {}
        for node, tensor, shape in self._tensors():
            name = f"{node.name}.{tensor}"
            if name in self.taken:
                found[name] = self._grown(node, tensor, shape, weights[name])
            elif name in parent.weights:
                found[name] = weights[name]
            elif name in self.constants:
                found[name] = np.full(shape, self.constants[name], kind)
            else:
                values = starts(node.layer, tensor, shape, self.child.reads(node), generator(self.seed, name))
                found[name] = values.astype(kind, copy=False)
        return found | {name: weights[name] for name in self.child.statistics}

    def carried_state(self, parent: Graph, state: Weights, power: int) -> dict[str, Array]:
        """For every parameter of the child: `Morphism.carry_state`."""
        kind = next(iter(state.values())).dtype
        found: dict[str, Array] = {}
        for node, tensor, shape in self._tensors():
            name = f"{node.name}.{tensor}"
            taken = self.taken.get(name)
            if taken is None and name in parent.weights:
                found[name] = state[name]
                continue
            found[name] = np.zeros(() if power == STEPS else shape, kind)
            if taken is None or taken.gradient is None:
                continue
            if power == STEPS:
                found[name] = state[name]
            else:
                here, there = taken.places()
                found[name][here] = _times(state[name][there], taken.gradient**power)
        return found

    def _tensors(self) -> Iterator[tuple[Node, str, Shape]]:
        for node in self.child.nodes:
            for tensor, shape in node.layer.weights(*self.child.reads(node)).items():
                yield node, tensor, shape

    def _grown(self, node: Node, tensor: str, shape: Shape, values: Array) -> Array:
        name = f"{node.name}.{tensor}"
        taken, rng = self.taken[name], generator(self.seed, name)
        found = np.zeros(shape, values.dtype)
        if taken.columns is not None:
            new = np.flatnonzero(taken.columns == NEW)
            found[:, new] = self._new(node, tensor, (shape[0], len(new)), taken.new_columns, rng)
        new = np.flatnonzero(taken.rows == NEW)
        found[new] = self._new(node, tensor, (len(new), *shape[1:]), taken.new_rows, rng)
        here, there = taken.places()
        found[here] = _times(values[there], taken.factor)
        return found

    def _new(
        self, node: Node, tensor: str, shape: Shape, value: float | None, rng: np.random.Generator
    ) -> Array | float:
        return starts(node.layer, tensor, shape, self.child.reads(node), rng) if value is None else value


def resized(
    graph: Graph,
    puts_out: Mapping[str, Index],
    reads: Mapping[str, Index],
    new_out: float | None = None,
    new_read: float | None = None,
) -> dict[str, Taken]:
    """The tensors of each Linear or Embedding of the parent that puts out or reads features of such origin.

    `new_out` is what the weights of new features start with where they are put out, `new_read` where they
    are read; None: random.
    """
    found: dict[str, Taken] = {}
    for name in {**puts_out, **reads}:
        layer, width = graph.node[name].layer, graph.shapes[name][1]
        rows = puts_out.get(name, np.arange(width))
        if isinstance(layer, Embedding):
            found[f"{name}.weight"] = Taken(np.arange(layer.symbols), rows, new_columns=new_out)
            continue
        columns = reads.get(name, np.arange(graph.reads(graph.node[name])[0][1]))
        found[f"{name}.weight"] = Taken(rows, columns, new_rows=new_out, new_columns=new_read)
        if isinstance(layer, Linear) and layer.bias:
            found[f"{name}.bias"] = Taken(rows, new_rows=new_out)
    return found


def more(old: int, new: int) -> Index:
    """`old` features as they are, and new ones up to `new`."""
    return np.concatenate([np.arange(old), np.full(new - old, NEW)])


def spread(source: Index, width: int) -> Index:
    """From heads to their features."""
    found = source[:, None] * width + np.arange(width)
    found[source == NEW] = NEW
    return found.ravel()


def _grid(axes: list[Index]) -> tuple[slice | Index, ...]:
    """Every index of one axis with every index of the other."""
    spans = tuple(span(axis) for axis in axes)
    return spans if any(isinstance(one, slice) for one in spans) else np.ix_(*axes)


def _times(values: Array, factor: float) -> Array:
    if factor == 1:
        return values
    found: Array = (values.astype(np.float64) * factor).astype(values.dtype)
    return found
