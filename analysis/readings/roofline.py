"""The time that a device's ceilings allow each layer of a network: a model, not a measurement.

A layer takes at least as long as its multiply-accumulates at the ceiling of matrix products, and as its
bytes at the ceiling of memory, whichever is longer (Williams, Waterman, Patterson, "Roofline", CACM 52(4),
2009). Every layer reads its inputs from memory and writes its output; nothing is fused, nothing is found in
a cache. So a network that fits a cache, or one whose layers a library joins, can be faster than this.
"""

from __future__ import annotations

from dataclasses import asdict
from math import prod
from typing import Any

from aiperf.score.example_counts import Counted, moved_elements
from aiperf.wording import percent, rate, scaled
from analysis.readings.limits import Limits
from analysis.table import aligned
from nas.frozen import frozen
from nas.graph import Graph, Node
from nas.ops import OPS, TENSOR_OPS

BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
"""Bytes of an activation by format. Weights and their gradients are fp32, and read or written once per
step."""
WEIGHT_BYTES = 4
NOTE = (
    "Modelled: every layer reads its inputs from memory and writes its output, forward and backward;\n"
    "nothing is fused or found in a cache, and weights are read once a step."
)


@frozen
class LayerLimit:
    """One layer, for one training example."""

    name: str
    layer: str
    operations: int
    """Number of operations at the price of OPS."""
    tensor_operations: int
    """Multiply-accumulates, as two operations each."""
    bytes: float
    """Bytes read and written, with a share of the weights."""
    compute_seconds: float
    """Seconds of its tensor operations at the ceiling of matrix products."""
    memory_seconds: float
    """Seconds of its bytes at the ceiling of memory."""

    @property
    def seconds(self) -> float:
        """The longer of the two: products and memory work at the same time."""
        return max(self.compute_seconds, self.memory_seconds)

    @property
    def bound(self) -> str:
        """Which of the two ceilings limits it."""
        return "products" if self.compute_seconds > self.memory_seconds else "memory"


def roofline(graph: Graph, limits: Limits, batch_size: int) -> tuple[LayerLimit, ...]:
    """The limits of every layer, forward and backward, for one example of a batch on one device."""
    return tuple(_limit(graph, node, limits, batch_size) for node in graph.nodes)


def example_seconds(graph: Graph, limits: Limits, batch_size: int) -> float:
    """Seconds of one training example on one device."""
    return sum(layer.seconds for layer in roofline(graph, limits, batch_size))


def _limit(graph: Graph, node: Node, limits: Limits, batch_size: int) -> LayerLimit:
    """The limits of one layer, forward and backward."""
    passes = [cost.train for cost in graph.charged(node)]
    tensor = sum(ops.price(TENSOR_OPS) for ops in passes)
    moved = _bytes(graph, node, BYTES[limits.format], batch_size)
    return LayerLimit(
        name=node.name,
        layer=type(node.layer).__name__,
        operations=sum(ops.price(OPS) for ops in passes),
        tensor_operations=tensor,
        bytes=moved,
        compute_seconds=tensor / limits.ops_per_second,
        memory_seconds=moved / limits.bytes_per_second,
    )


def _bytes(graph: Graph, node: Node, element: int, batch_size: int) -> float:
    """Bytes that a layer moves for one example."""
    weights = sum(map(prod, node.layer.weights(*graph.reads(node)).values()))
    return moved_bytes(moved_elements(graph, node), weights, element, batch_size)


def moved_bytes(elements: int, weights: int, element: int, batch_size: float) -> float:
    """Bytes moved for one example. Weights are read twice and their gradient is written once per step of a
    device, so the examples of a batch share them."""
    return elements * element + 3 * weights * WEIGHT_BYTES / batch_size


def intensity(found: Counted, format_: str, batch_size: float) -> float | None:
    """Tensor operations of a training example per byte moved, with `batch_size` examples on a device; None if
    the format or the architecture is not known."""
    if format_ not in BYTES or found.moved is None:
        return None
    moved = moved_bytes(found.moved, found.parameters, BYTES[format_], batch_size)
    return found.train_price(TENSOR_OPS) / moved


def roofline_text(graph: Graph, limits: Limits, batch_size: int) -> str:
    """A table of the layers, with the sums and what is modelled, for a terminal."""
    found = roofline(graph, limits, batch_size)
    total = sum(layer.seconds for layer in found)
    rows = [["layer", "kind", "tensor OPS", "OPS", "bytes", "products", "memory", "bound by", "share"]]
    rows += [_row(layer, total) for layer in found]
    by_products = sum(layer.seconds for layer in found if layer.bound == "products")
    tensor = sum(layer.tensor_operations for layer in found)
    example = graph.head.example
    head = (
        f"Roofline of one training {example} in {limits.format}, of a batch of {batch_size:,}, on one "
        f"{limits.device}:\n{rate(limits.ops_per_second)} of matrix products, "
        f"{scaled(limits.bytes_per_second, 'B/s')} of memory"
    )
    sums = (
        f"at least {seconds_text(total)}: at most {1 / total:,.4g} {example}s/s, {rate(tensor / total)} of "
        f"tensor operations; {percent(by_products / total, 1)}\n"
        "of the time is bound by products, the rest by memory"
    )
    return "\n\n".join([head, aligned(rows), sums, NOTE])


def _row(layer: LayerLimit, total: float) -> list[str]:
    """A row of the table of layers."""
    return [
        layer.name,
        layer.layer,
        f"{layer.tensor_operations:,}",
        f"{layer.operations:,}",
        f"{layer.bytes:,.0f}",
        seconds_text(layer.compute_seconds),
        seconds_text(layer.memory_seconds),
        layer.bound,
        percent(layer.seconds / total, 1),
    ]


def roofline_json(graph: Graph, limits: Limits, batch_size: int) -> dict[str, Any]:
    """The same for other programs."""
    found = roofline(graph, limits, batch_size)
    return {
        "limits": asdict(limits),
        "batch_size": batch_size,
        "graph_key": graph.key,
        "seconds": sum(layer.seconds for layer in found),
        "layers": [asdict(layer) | {"seconds": layer.seconds, "bound": layer.bound} for layer in found],
    }


def seconds_text(seconds: float) -> str:
    """Three digits, in the largest unit of which there is at least one: "1.25 ms", "0 ns"."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            number = seconds / size
            return f"{number:.3g} {unit}" if number < 1000 else f"{number:,.0f} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
