"""What a child's tensors take from its parent's, stated once for values, gradients and optimizer state.

    value[i, j]    = factor · parent's value[rows[i], columns[j]]
    gradient[i, j] = gradient · parent's gradient[rows[i], columns[j]]

A first moment of the gradient (a momentum, Adam's m) then follows with `gradient`, Adam's v with its square,
and both begin at 0 where something is new. A number of steps is the tensor's, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from nas.frozen import frozen
from nas.graph import Graph, Node
from nas.layers import Embedding, Experts, Linear, Shape
from nas.morphisms.channels import NEW, Index, refuse_many, span
from nas.morphisms.morphism import STEPS
from nas.weights import Array, Weights, generator, starts


@frozen(eq=False)
class Taken:
    """A tensor made of parts of one of the parent's. An index is NEW where nothing is taken."""

    rows: Index
    columns: Index | None = None
    """Indices of the columns; None for vectors."""
    matrices: Index | None = None
    """Indices of the matrices of a tensor of experts, (matrices, rows, columns); all 0 for copies of one
    matrix."""
    of: str = ""
    """The parent's tensor; empty: that of the same name."""
    factor: float = 1.0
    """Factor of the values."""
    gradient: float | None = 1.0
    """Factor of the gradient. None if it is not a multiple of the parent's: the optimizer's state starts
    anew."""
    new_rows: float | None = None
    """Value that new rows start with; None: as in an untrained layer."""
    new_columns: float | None = None

    def axes(self) -> list[tuple[Index, float | None]]:
        """For each axis, the indices that are taken, and the value that new ones start with."""
        axes = [(self.matrices, None), (self.rows, self.new_rows), (self.columns, self.new_columns)]
        return [(index, value) for index, value in axes if index is not None]

    def places(self) -> tuple[Any, Any]:
        """The indices of what is taken, in the child's tensor and in the parent's."""
        axes = [index for index, _ in self.axes()]
        kept = [np.flatnonzero(axis != NEW) for axis in axes]
        return _grid(kept), _grid([axis[some] for axis, some in zip(axes, kept)])

    def source(self, name: str, tensors: Weights) -> Array:
        """The parent's tensor for that of this name, with as many axes."""
        found = tensors[self.of or name]
        return found[None] if self.matrices is not None and found.ndim == 2 else found


@frozen
class Growth:
    """A child, and all that must be known to carry a parent's tensors to it.

    A tensor that is not named here is the parent's own, or starts as that of an untrained layer.
    """

    child: Graph
    taken: Mapping[str, Taken] = field(default_factory=dict)
    constants: Mapping[str, float] = field(default_factory=dict)
    """Values that wholly new tensors are filled with."""
    seed: int = 0
    """Seed of random values."""

    def carried(self, parent: Graph, weights: Weights) -> dict[str, Array]:
        """Every parameter of the child, of the type of `weights`, computed in fp64 and rounded once.

        Statistics stay as they are; those of a new layer start as untrained.
        """
        kind = next(iter(weights.values())).dtype
        found: dict[str, Array] = {}
        for node, tensor, shape in self._tensors(with_statistics=True):
            name = f"{node.name}.{tensor}"
            if name in self.taken:
                found[name] = self._grown(node, tensor, shape, weights)
            elif name in weights:
                found[name] = weights[name]
            elif name in self.constants:
                found[name] = np.full(shape, self.constants[name], kind)
            else:
                values = starts(node.layer, tensor, shape, self.child.reads(node), generator(self.seed, name))
                found[name] = values.astype(kind, copy=False)
        return {name: found[name] for name in (*self.child.weights, *self.child.statistics)}

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
                found[name] = state[taken.of or name]
            else:
                here, there = taken.places()
                found[name][here] = _times(taken.source(name, state)[there], taken.gradient**power)
        return found

    def _tensors(self, with_statistics: bool = False) -> Iterator[tuple[Node, str, Shape]]:
        """Each node of the child with each of its tensors."""
        for node in self.child.nodes:
            reads = self.child.reads(node)
            statistics = node.layer.statistics(*reads) if with_statistics else {}
            for tensor, shape in {**node.layer.weights(*reads), **statistics}.items():
                yield node, tensor, shape

    def _grown(self, node: Node, tensor: str, shape: Shape, weights: Weights) -> Array:
        """The tensor: first what is new along each axis, the last axis first, then what is taken."""
        name = f"{node.name}.{tensor}"
        taken, rng = self.taken[name], generator(self.seed, name)
        values = taken.source(name, weights)
        found = np.zeros(shape, values.dtype)
        for place, (index, value) in reversed(list(enumerate(taken.axes()))):
            new = np.flatnonzero(index == NEW)
            some = (*shape[:place], len(new), *shape[place + 1 :])
            found[(slice(None),) * place + (new,)] = self._new(node, tensor, some, value, rng)
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
    """The tensors of each layer of the parent that puts out or reads features of such origin.

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
        if isinstance(layer, Experts):
            each, inside = np.arange(layer.experts), np.arange(layer.hidden)
            found[f"{name}.router"] = Taken(each, columns, new_columns=new_read)
            for part in ("gate", "up") if layer.gated else ("up",):
                found[f"{name}.{part}"] = Taken(inside, columns, each, new_columns=new_read)
            found[f"{name}.down"] = Taken(rows, inside, each, new_rows=new_out)
            continue
        found[f"{name}.weight"] = Taken(rows, columns, new_rows=new_out, new_columns=new_read)
        if isinstance(layer, Linear) and layer.bias:
            found[f"{name}.bias"] = Taken(rows, new_rows=new_out)
    return found


def more(old: int, new: int) -> Index:
    """`old` features as they are, and new ones up to `new`. Raises MorphismError for too many."""
    refuse_many(new, "the child")
    return np.concatenate([np.arange(old), np.full(new - old, NEW)])


def spread(source: Index, width: int) -> Index:
    """Indices of the features of heads, from those of the heads."""
    found = source[:, None] * width + np.arange(width)
    found[source == NEW] = NEW
    return found.ravel()


def _grid(axes: list[Index]) -> tuple[slice | Index, ...]:
    """Every index of one axis with every index of the others."""
    spans = tuple(span(axis) for axis in axes)
    # Two lists of numbers would be paired, also on both sides of a slice.
    return spans if sum(isinstance(one, slice) for one in spans) >= len(spans) - 1 else np.ix_(*axes)


def _times(values: Array, factor: float) -> Array:
    """The product in fp64, rounded once."""
    if factor == 1:
        return values
    found: Array = (values.astype(np.float64) * factor).astype(values.dtype)
    return found
