"""The nodes of a graph in a training step: measured, counted, and by the roofline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from aiperf.wire.profile_records import BACKWARD, FORWARD, LOSS
from analysis.readings.limits import Limits
from analysis.readings.profile.spans import LOSS_NODE, NANO, SUMS, Span
from analysis.readings.roofline import LayerLimit, roofline
from nas.graph import Graph
from nas.ops import OPS, TENSOR_OPS, Cost, Ops

NETWORK = "between the nodes"
"""Name of the time of both passes that belongs to no node: Python, the autograd engine."""


@dataclass(frozen=True)
class NodeTime:
    """One node of the graph, or the loss, or the sums of gradients: measured, counted, and modelled."""

    name: str
    layer: str
    """Kind of its layer; empty if it is not a node."""
    forward_seconds: float
    backward_seconds: float
    share: float
    """Share of the step's time."""
    operations: int | None
    """Operations for the step's examples, at the price of OPS; None if they are not counted."""
    tensor_operations: int | None
    roofline_seconds: float | None
    """Seconds that the ceilings allow; None without ceilings, or if it is not a node."""
    bound: str

    @property
    def seconds(self) -> float:
        return self.forward_seconds + self.backward_seconds

    @property
    def ops_per_second(self) -> float | None:
        return self.operations / self.seconds if self.operations is not None and self.seconds else None

    @property
    def times_roofline(self) -> float | None:
        """How many times as long as the ceilings allow."""
        return self.seconds / self.roofline_seconds if self.roofline_seconds else None


def node_times(
    steps: Sequence[Sequence[Span]], graph: Graph, limits: Limits | None, examples: int, step_seconds: float
) -> list[NodeTime]:
    """In the order of the graph, then the loss, the sums of gradients, and what belongs to no node.

    Each time is the median of the profiled steps, so that one interruption does not make a layer slow; the
        medians add up to nearly the step. `step_seconds` is the time that shares are taken of.
    """
    each = [_by_node(step) for step in steps]
    limit = {one.name: one for one in roofline(graph, limits, examples)} if limits else {}
    costs = _costs(graph)
    return [
        _node(
            graph,
            name,
            median(forward[name] for forward, _ in each) / NANO,
            median(backward[name] for _, backward in each) / NANO,
            costs.get(name),
            limit.get(name),
            examples,
            step_seconds,
        )
        for name in (*graph.node, LOSS_NODE, SUMS, NETWORK)
    ]


def _costs(graph: Graph) -> Mapping[str, tuple[Cost, ...]]:
    """Costs of one example by name: all that the graph counts."""
    rows = graph.rows
    sums = (rows["grad_accum"].cost,) if "grad_accum" in rows else ()
    charged = {node.name: graph.charged(node) for node in graph.nodes}
    return {**charged, LOSS_NODE: (rows["softmax_xent"].cost,), SUMS: sums}


def _node(
    graph: Graph,
    name: str,
    forward: float,
    backward: float,
    costs: tuple[Cost, ...] | None,
    limit: LayerLimit | None,
    examples: int,
    step_seconds: float,
) -> NodeTime:
    node = graph.node.get(name)
    return NodeTime(
        name=name,
        layer=type(node.layer).__name__ if node else "",
        forward_seconds=forward,
        backward_seconds=backward,
        share=(forward + backward) / step_seconds,
        operations=None if costs is None else examples * _price(costs, OPS),
        tensor_operations=None if costs is None else examples * _price(costs, TENSOR_OPS),
        roofline_seconds=examples * limit.seconds if limit else None,
        bound=limit.bound if limit else "",
    )


def _price(costs: Iterable[Cost], prices: Ops) -> int:
    return sum(cost.train.price(prices) for cost in costs)


def _by_node(step: Sequence[Span]) -> tuple[Counter[str], Counter[str]]:
    """Nanoseconds of the forward pass, the loss among it, and of the backward pass, without what only waits
    for a collective."""
    forward, backward = Counter[str](), Counter[str]()
    for span in step:
        if span.phase in (FORWARD, LOSS, BACKWARD):
            owner = span.node or (LOSS_NODE if span.phase == LOSS else NETWORK)
            waited = span.beside if span.waits else 0
            (backward if span.phase == BACKWARD else forward)[owner] += span.nanoseconds - waited
    return forward, backward
