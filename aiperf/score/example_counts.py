"""What one example costs in one architecture: operations, parameters and memory traffic."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from aiperf.journal.events import Dispatched
from aiperf.score.aiperf1 import OldCount, old_count
from nas.graph import Graph, Node
from nas.ops import Ops


@dataclass(frozen=True, slots=True)
class Counted:
    """Operations of one example in one architecture."""

    graph_key: str
    forward: Ops
    backward: Ops
    evaluate: Ops
    parameters: int
    old: OldCount | None = None
    """Operations as AIPerf 1.0 counted them; None if the graph was not available."""
    moved: int | None = None
    """Elements that a training example moves, layer by layer; None if the graph was not available."""

    @property
    def train(self) -> Ops:
        return self.forward + self.backward

    def train_price(self, prices: Ops) -> int:
        """The same, each kind weighed by its price."""
        return self.forward.price(prices) + self.backward.price(prices)


def counted(graph: Graph) -> Counted:
    """The counts of an architecture, computed from its graph."""
    cost = graph.cost
    return Counted(
        graph.key,
        cost.forward,
        cost.backward,
        cost.evaluate,
        graph.num_parameters,
        old_count(graph),
        all_moved_elements(graph),
    )


def recorded(dispatched: Dispatched) -> Counted:
    """The counts in a line `Dispatched`."""
    return Counted(
        dispatched.graph_key,
        Ops(*dispatched.forward),
        Ops(*dispatched.backward),
        Ops(*dispatched.evaluate),
        dispatched.parameters,
    )


def moved_elements(graph: Graph, node: Node) -> int:
    """Elements of activations and gradients that one node reads and writes for one training example, if no
    layer leaves anything in a cache for the next. Forward, the inputs are read and the output is written.
    Backward, the output's gradient and the inputs are read, and the inputs' gradients are written, as far as
    they are needed."""
    read, written = sum(map(prod, graph.reads(node))), prod(graph.shapes[node.name])
    trained, reached = node.name in graph.trained, not graph.trained.isdisjoint(node.inputs)
    return read + written + (written + read if trained else 0) + (read if reached else 0)


def all_moved_elements(graph: Graph) -> int:
    """The same of all nodes together."""
    return sum(moved_elements(graph, node) for node in graph.nodes)
