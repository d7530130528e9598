"""The immutable graph of an architecture: nodes in topological order, from one input to the logits."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod

from nas.layers import Layer, Shape, ShapeError, softmax_cross_entropy
from nas.ops import Cost, Ops

__all__ = ["INPUT", "Graph", "Node", "Row"]

INPUT = "input"  # the name under which nodes read the image


@dataclass(frozen=True)
class Node:
    """A layer with a name that survives morphisms, and the names of what it reads."""

    name: str
    layer: Layer
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One line of the table of operations: how many there are, and what they cost for one image."""

    num: int
    cost: Cost


@dataclass(frozen=True)
class Graph:
    """An architecture. Construction infers every shape and refuses what does not fit.

    `input` is (channels, height, width); the last node is the output and has the shape (classes,).
    Raises ShapeError for layers that do not fit, unknown or repeated names, and nodes nobody reads.
    """

    input: Shape
    nodes: tuple[Node, ...]
    shapes: Mapping[str, Shape] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ShapeError("a graph needs at least one node")
        if len(self.input) != 3 or min(self.input) < 1:
            raise ShapeError(f"the input is (channels, height, width), not {self.input}")
        shapes: dict[str, Shape] = {INPUT: self.input}
        for node in self.nodes:
            if node.name in shapes:
                raise ShapeError(f"two nodes are named {node.name!r}")
            try:
                shapes[node.name] = _shape(node.layer, *[shapes[name] for name in node.inputs])
            except KeyError as error:
                raise ShapeError(f"{node.name} reads {error}, which is not above it") from None
            except ShapeError as error:
                raise ShapeError(f"{node.name}: {error}") from None
        object.__setattr__(self, "shapes", shapes)
        unread = shapes.keys() - {name for node in self.nodes for name in node.inputs}
        if unread != {self.output}:
            raise ShapeError(f"nobody reads {sorted(unread - {self.output}) or self.nodes[-1].name}")
        if len(shapes[self.output]) != 1:
            raise ShapeError(f"the output has the shape {shapes[self.output]}, not (classes,)")

    @property
    def output(self) -> str:
        return self.nodes[-1].name

    @property
    def classes(self) -> int:
        return self.shapes[self.output][0]

    @cached_property
    def node(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def readers(self) -> Mapping[str, tuple[Node, ...]]:
        """For each tensor, the nodes that read it, in order; a node reading it twice stands twice."""
        found: dict[str, list[Node]] = {name: [] for name in self.shapes}
        for node in self.nodes:
            for name in node.inputs:
                found[name].append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    @cached_property
    def trained(self) -> frozenset[str]:
        """The tensors with weights at or above them: those that a gradient must reach."""
        found: set[str] = set()
        for node in self.nodes:
            if not found.isdisjoint(node.inputs) or node.layer.weights(*self.reads(node)):
                found.add(node.name)
        return frozenset(found)

    def reads(self, node: Node) -> tuple[Shape, ...]:
        """The shapes of a node's inputs."""
        return tuple(self.shapes[name] for name in node.inputs)

    @cached_property
    def weights(self) -> Mapping[str, Shape]:
        """Every trained tensor, as "node.tensor"."""
        return {
            f"{node.name}.{name}": shape
            for node in self.nodes
            for name, shape in node.layer.weights(*self.reads(node)).items()
        }

    @cached_property
    def statistics(self) -> Mapping[str, Shape]:
        """Every tensor that is kept but not trained, as "node.tensor"."""
        return {
            f"{node.name}.{name}": shape
            for node in self.nodes
            for name, shape in node.layer.statistics(*self.reads(node)).items()
        }

    @cached_property
    def num_parameters(self) -> int:
        return sum(prod(shape) for shape in self.weights.values())

    @cached_property
    def num_activations(self) -> int:
        """Elements of all node outputs, for one image. Times the format's width: activation bytes."""
        return sum(prod(self.shapes[node.name]) for node in self.nodes)

    @cached_property
    def rows(self) -> Mapping[str, Row]:
        """The table of operations for one image, by kind of layer, the loss and forks included."""
        num: Counter[str] = Counter()
        total: dict[str, Cost] = {}
        for name, cost in self._charges():
            num[name] += 1
            total[name] = total[name] + cost if name in total else cost
        return {name: Row(num[name], total[name]) for name in total}

    @cached_property
    def cost(self) -> Cost:
        """All operations for one image."""
        return sum((row.cost for row in self.rows.values()), Cost())

    @cached_property
    def key(self) -> str:
        """A hash of the architecture that does not depend on names."""
        index = {name: str(place) for place, name in enumerate(self.shapes)}
        lines = [repr(self.input)]
        lines += [f"{node.layer!r} {' '.join(map(index.__getitem__, node.inputs))}" for node in self.nodes]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def _charges(self) -> list[tuple[str, Cost]]:
        charges: list[tuple[str, Cost]] = []
        for node in self.nodes:
            needs_input_grad = not self.trained.isdisjoint(node.inputs)
            charges += _charged(node.layer, self.reads(node), needs_input_grad)
        for name in self.trained:
            forks = len(self.readers[name]) - 1
            if forks > 0:
                sums = Ops(add=forks * prod(self.shapes[name]))
                charges.append(("grad_accum", Cost(input_grad=sums)))
        charges.append(("softmax_xent", softmax_cross_entropy(self.classes)))
        return charges


# Children share nearly all their layers with their parents.
@lru_cache(maxsize=1 << 16)
def _shape(layer: Layer, *inputs: Shape) -> Shape:
    return layer.shape(*inputs)


@lru_cache(maxsize=1 << 16)
def _charged(layer: Layer, inputs: tuple[Shape, ...], input_grad: bool) -> tuple[tuple[str, Cost], ...]:
    costs = layer.costs(*inputs).items()
    if input_grad:
        return tuple(costs)
    return tuple((row, Cost(cost.forward, Ops(), cost.weight_grad, cost.evaluate)) for row, cost in costs)
