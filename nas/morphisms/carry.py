"""The child's tensors from the parent's: one rule for all layers.

The first axis of a tensor is what its node puts out, the second what it reads; both are known once
the channels are followed through the graph. Then

    weight[i, j]   = share[j] · parent's weight[source[i], source[j]]
    gradient[i, j] = share[i] · parent's gradient[source[i], source[j]]

and the second is the chain rule for the first: a copy is read with its share, so its share of the
gradient comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.frozen import frozen
from nas.graph import Graph, Node
from nas.layers import Shape
from nas.morphisms.channels import Channels, Reading, follow, reading, span
from nas.morphisms.morphism import STEPS
from nas.weights import Array, Weights, generator, starts

Shares = NDArray[np.float64]


@frozen
class Twin:
    """Takes its tensors from the parent's node `of`, times a factor."""

    of: str
    share: float = 1.0
    """Factor of the trained tensors; statistics are taken whole."""
    gradient: float = 1.0
    """Share of the parent's gradient that arrives."""


@frozen
class Edit:
    """A child, and all that must be known to carry a parent's tensors to it."""

    child: Graph
    channels: Callable[[], Mapping[str, Channels]] = dict
    """Channels of the outputs that differ from the parent's, by node. `follow` finds where they go from
    there. They are computed only when weights are carried: most children of a search are never trained."""
    constants: Mapping[str, float] = field(default_factory=dict)
    """Values that new tensors are filled with, by name."""
    magnitudes: frozenset[str] = frozenset()
    """New tensors that start with absolute values."""
    twins: Mapping[str, Twin] = field(default_factory=dict)
    """Nodes that take their tensors, or shares of them, from a node of the parent."""
    seed: int = 0
    """Seed of all other new values."""

    def new(self, node: Node, tensor: str, shape: Shape) -> Array:
        """Starting values for a tensor of the child, or for the `shape` of some of its rows."""
        name = f"{node.name}.{tensor}"
        if name in self.constants:
            return np.full(shape, self.constants[name], np.float32)
        values = starts(node.layer, tensor, shape, self.child.reads(node), generator(self.seed, name))
        return np.abs(values) if name in self.magnitudes else values

    def carried(self, parent: Graph, weights: Weights) -> dict[str, Array]:
        """Every parameter and statistic of the child."""
        found: dict[str, Array] = {}
        for node, twin, way in _ways(parent, self):
            reads = self.child.reads(node)
            trained = node.layer.weights(*reads)
            for tensor, shape in {**trained, **node.layer.statistics(*reads)}.items():
                name = f"{node.name}.{tensor}"
                if way is None:
                    found[name] = self.new(node, tensor, shape).astype(_type(weights), copy=False)
                    continue
                share = np.full(len(way.rows.share), twin.share if tensor in trained else 1.0)
                values = _placed(weights[f"{twin.of}.{tensor}"], shape, way, share, way.columns.share)
                new = way.rows.source < 0
                if new.any():
                    values[new] = self.new(node, tensor, (int(new.sum()), *shape[1:]))
                found[name] = values
        return found

    def carried_state(self, parent: Graph, state: Weights, power: int) -> dict[str, Array]:
        """For every parameter of the child: `Morphism.carry_state`."""
        found: dict[str, Array] = {}
        for node, twin, way in _ways(parent, self):
            for tensor, shape in node.layer.weights(*self.child.reads(node)).items():
                name, of = f"{node.name}.{tensor}", f"{twin.of}.{tensor}"
                if way is None:
                    found[name] = np.zeros(() if power == STEPS else shape, _type(state))
                elif power == STEPS:
                    found[name] = state[of]
                else:
                    arriving = (way.rows.share * twin.gradient) ** power
                    found[name] = _placed(state[of], shape, way, arriving, np.ones(len(way.columns.share)))
        return found


def _ways(parent: Graph, edit: Edit) -> Iterator[tuple[Node, Twin, Reading | None]]:
    """Each node of the child with tensors, where they come from and how; None: they are new."""
    channels = follow(parent, edit.child, edit.channels())
    for node in edit.child.nodes:
        if node.layer.weights(*edit.child.reads(node)):
            twin = edit.twins.get(node.name, Twin(node.name))
            old = parent.node.get(twin.of)
            yield node, twin, None if old is None else reading(parent, old, node, channels)


def _placed(values: Array, shape: Shape, way: Reading, rows: Shares, columns: Shares) -> Array:
    """The parent's values where the child copies them, times the shares of its rows and columns.

    What stays is the parent's own array: that is most of a large network, and copies would double it.
    """
    if way.same and values.shape == shape and (rows == 1).all():
        return values
    found = np.zeros(shape, values.dtype)
    if len(shape) == 1:
        kept = np.flatnonzero(way.rows.source >= 0)
        found[kept] = _portion(values[way.rows.source[kept]], rows[kept])
        return found
    margin = (shape[-1] - values.shape[-1]) // 2 if len(shape) == 4 else 0
    # A larger kernel has the parent's in its middle.
    middle = found[..., margin:-margin, margin:-margin] if margin else found
    for block in way.blocks():
        taken = values[span(way.rows.source[block.rows])]
        taken = taken[:, span(way.columns.source[block.columns] - block.was_first)]
        taken = _portion(taken, rows[block.rows])
        taken = _portion(taken.swapaxes(0, 1), columns[block.columns]).swapaxes(0, 1)
        into, at = span(block.rows), span(block.columns - block.first)
        if isinstance(into, slice) or isinstance(at, slice):
            middle[into, at] = taken
        else:  # numpy would pair two lists of numbers; wanted is every row with every column
            middle[np.ix_(into, at)] = taken
    return found


def _portion(values: Array, share: Shares) -> Array:
    """values · share along the first axis, such that `share` and 1 − share add up to `values` exactly.

    The greater is rounded once; by Sterbenz's lemma the rest of `values` then needs no rounding.
    """
    part = np.flatnonzero(share != 1)
    if not len(part):
        return values
    whole = values[part]
    shares = share[part].reshape(-1, *[1] * (values.ndim - 1))
    greater = (whole * np.maximum(shares, 1 - shares)).astype(values.dtype)
    found: Array = values.copy()
    found[part] = np.where(shares >= 0.5, greater, whole - greater)
    return found


def _type(weights: Weights) -> np.dtype[Any]:
    """The number type of the weights, which is one for all."""
    found: np.dtype[Any] = next(iter(weights.values())).dtype
    return found
