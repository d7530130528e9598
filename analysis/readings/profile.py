"""A recorded step as values: time by phase, by kind of operation and by node of the graph; memory.

Time and memory are measured, operations are counted, and the time that the ceilings allow is modelled.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from statistics import median

from aiperf.wire.profile_records import BACKWARD, FORWARD, LOAD, LOSS, OPTIMIZER, PHASES, Recorded
from analysis.readings.limits import Limits
from analysis.readings.profile_spans import (
    ALL_REDUCE,
    BESIDE,
    BETWEEN,
    ENGINE,
    LOSS_NODE,
    NANO,
    SENDING,
    SUMS,
    Span,
    spans,
)
from analysis.readings.roofline import roofline
from nas.frozen import frozen
from nas.graph import Graph
from nas.ops import OPS, TENSOR_OPS, Cost, Ops
from nas.record import graph_from_json

ROWS = (
    *(row for phase in PHASES for row in (phase, f"{phase}{BESIDE}")),
    *(ALL_REDUCE, BETWEEN, f"{BETWEEN}{BESIDE}"),
)
"""Rows of the table of phases, in order; those that took no time are left out."""

OTHER, PYTHON, AUTOGRAD = "other", "Python", "autograd engine"
NETWORK = "between the nodes"
"""Name of the time of both passes that belongs to no node: Python, the autograd engine."""

_OURS = re.compile(r"^(aten|prim|mkldnn|torch|c10d|autograd)::|Backward\d*$|^detach$")
"""Whatever else lasts is a range: Python, between two operations."""
_KINDS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("attention", r"scaleddotproduct|flashattention|efficientattention"),
        ("convolution", r"conv(?!ert)"),
        ("normalisation", r"(batch|layer|rms|group|instance)norm"),
        ("pooling and means", r"pool|^mean"),
        ("loss", r"softmax|nllloss|crossentropy"),
        ("embedding", r"embedding"),
        ("matrix product", r"^(add|baddb?)?b?m[mv]($|backward)|matmul|^linear|gemm|^dot"),
        ("activation", r"relu|gelu|silu|sigmoid|tanh|threshold|clamp"),
        ("copy and cast", r"copy|^to$|clone|contiguous|^cat|stack|repeat"),
        ("allocation and fill", r"^empty|resize|zero|fill|^ones|^new|full"),
        (
            "view",
            (
                r"view|reshape|^t($|backward)|transpose|permute|expand|slice|(?<!index)select|split|chunk|flatten"
                "|strided|detach|squeeze|narrow|alias|unbind|resolve"
            ),
        ),
        ("sorting and indexing", r"sort|topk|index|gather|scatter"),
        ("sum", r"^sum|norm$"),
        ("element-wise", r"^(r?sub|add|mul|div|neg|pow|square|r?sqrt|exp|log|sign|lerp|where|maximum)"),
    )
)
"""Kinds of operations and patterns of their names, in lower case, without underscores, library and number."""


@frozen
class StepPart:
    """A share of the step, apart from all others."""

    name: str
    seconds: float
    share: float
    calls: int | None = None


@frozen
class MemoryRow:
    """Bytes of one kind; None if they are not known."""

    name: str
    measured: int | None
    modelled: int | None
    predicted: int | None


@frozen
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
        """Time of both passes."""
        return self.forward_seconds + self.backward_seconds

    @property
    def ops_per_second(self) -> float | None:
        """Rate of its operations; None if they are not counted or took no time."""
        return self.operations / self.seconds if self.operations is not None and self.seconds else None

    @property
    def times_roofline(self) -> float | None:
        """How many times as long as the ceilings allow."""
        return self.seconds / self.roofline_seconds if self.roofline_seconds else None


@frozen
class Profile:
    """The profile of a network on examples of one size."""

    recorded: Recorded
    graph: Graph

    @classmethod
    def of(cls, recorded: Recorded) -> Profile:
        """Raises RecordError or ShapeError if the recorded graph cannot be one."""
        return cls(recorded, graph_from_json(dict(recorded.graph)))

    @property
    def size(self) -> int:
        """Size of the examples: the side of an image, the positions of a text."""
        return self.graph.input[-1]

    @cached_property
    def _steps(self) -> Sequence[Sequence[Span]]:
        """Spans of each profiled step."""
        names = [node.name for node in self.graph.nodes]
        return [spans(events, names) for events in self.recorded.steps]

    @property
    def spans(self) -> Sequence[Span]:
        """Spans of the chosen step."""
        return self._steps[self.recorded.chosen]

    @cached_property
    def step_seconds(self) -> float:
        """The sum of all spans."""
        return sum(span.nanoseconds for span in self.spans) / NANO

    @property
    def stopwatch_share(self) -> float:
        """The sum of all spans as a share of a stopwatch's time for the same step."""
        return self.step_seconds / self.recorded.profiled_seconds[self.recorded.chosen]

    @property
    def plain_seconds(self) -> float:
        """Seconds of a step as training makes it, without the profiler: the median."""
        return median(self.recorded.plain_seconds)

    @property
    def slowdown(self) -> float:
        """Time of a profiled step over that of a plain one: the median of the pairs."""
        pairs = zip(self.recorded.profiled_seconds, self.recorded.plain_seconds)
        return median(profiled / plain for profiled, plain in pairs)

    @property
    def ops_per_second(self) -> float:
        """OPS of this rank in plain steps."""
        return self.recorded.examples * self.graph.operations / self.plain_seconds

    @property
    def evaluate_seconds(self) -> float:
        """Seconds to validate one example."""
        return self.recorded.validate_seconds / self.recorded.validated

    @property
    def evaluate_ops_per_second(self) -> float:
        """OPS of this rank in validation."""
        return self.graph.cost.evaluate.price(OPS) / self.evaluate_seconds

    @cached_property
    def phases(self) -> Sequence[StepPart]:
        """Time by phase; each moment is in one row, so the rows add up to the step."""
        found: Counter[str] = Counter()
        for span in self.spans:
            for row, nanoseconds in span.rows:
                found[row] += nanoseconds
        return [self._part(row, found[row]) for row in ROWS if found[row]]

    @cached_property
    def kinds(self) -> Sequence[StepPart]:
        """Time by kind of operation, the longest first; the kinds add up to the step."""
        found = Counter[str]()
        for span in self.spans:
            for kind, nanoseconds in kinds(span):
                found[kind] += nanoseconds
        return [self._part(kind, nanoseconds) for kind, nanoseconds in found.most_common()]

    @cached_property
    def operations(self) -> Sequence[StepPart]:
        """Time by operation of torch, each without those that it calls, the longest first."""
        found, calls = Counter[str](), Counter[str]()
        for span in self.spans:
            if "::" in span.operation and not span.operation.startswith("autograd::"):
                found[span.operation] += span.nanoseconds
                calls[span.operation] += span.opens
        return [self._part(name, nanoseconds, calls[name]) for name, nanoseconds in found.most_common()]

    @cached_property
    def nodes(self) -> Sequence[NodeTime]:
        """Times of the nodes in the order of the graph, then of what is not a node."""
        return node_times(self._steps, self.graph, self.limits, self.recorded.examples, self.step_seconds)

    @property
    def limits(self) -> Limits | None:
        """The ceilings that were measured with the profile; None without them."""
        ceilings, recorded = self.recorded.ceilings, self.recorded
        if ceilings is None:
            return None
        rates = ceilings.ops_per_second, ceilings.bytes_per_second
        return Limits(recorded.device, recorded.format, *rates)

    @property
    def memory(self) -> Sequence[MemoryRow]:
        """Memory by kind when the backward pass begins, the additional memory at the peak, and the peak."""
        found, modelled, predicted = self.recorded.memory, self.recorded.modelled, self.recorded.predicted
        kinds = ("weights", "statistics", "gradients", "optimizer_state", "examples", "activations")
        rows = []
        for kind in kinds:
            foretold = getattr(predicted, kind) if predicted else None
            rows.append(MemoryRow(kind.replace("_", " "), getattr(found, kind), modelled.get(kind), foretold))
        rest = found.peak - sum(getattr(found, kind) for kind in kinds)
        foreseen = sum(amount for kind, amount in modelled.items() if kind not in kinds)
        whole = sum(modelled.values())
        return [
            *rows,
            MemoryRow("more at the peak", rest, foreseen if modelled else None, None),
            MemoryRow("peak", found.peak, whole if modelled else None, predicted.peak if predicted else None),
        ]

    def _part(self, name: str, nanoseconds: int, calls: int | None = None) -> StepPart:
        """A part of the chosen step, from its nanoseconds."""
        seconds = nanoseconds / NANO
        return StepPart(name, seconds, seconds / self.step_seconds, calls)


def kinds(span: Span) -> Iterator[tuple[str, int]]:
    """Nanoseconds by kind. Loading and the optimizer are kinds of their own, whatever they are made of."""
    waited = span.beside if span.waits else 0
    if waited:
        yield ALL_REDUCE, waited
    yield _kind(span), span.nanoseconds - waited


def _kind(span: Span) -> str:
    """The kind of the innermost operation. Names are compared by patterns, because torch has thousands of
    operations."""
    if span.phase in (LOAD, OPTIMIZER):
        return span.phase
    name = span.operation
    if name.startswith(SENDING):
        return ALL_REDUCE
    if name.startswith(ENGINE) or name == "torch::autograd::AccumulateGrad":
        return AUTOGRAD
    if not _OURS.search(name):
        return PYTHON
    plain = name.rpartition("::")[2].replace("_", "").lower()
    own = re.sub(r"^(native|mkldnn|cudnn|miopen|thnn)|\d+$", "", plain)
    return next((kind for kind, pattern in _KINDS if pattern.search(own)), OTHER)


def node_times(
    steps: Sequence[Sequence[Span]], graph: Graph, limits: Limits | None, examples: int, step_seconds: float
) -> list[NodeTime]:
    """In the order of the graph, then the loss, the sums of gradients, and what belongs to no node.

    Each time is the median of the profiled steps, so that one interruption does not make a layer slow; the
        medians add up to nearly the step. `step_seconds` is the time that shares are taken of.
    """
    each = [_by_node(step) for step in steps]
    limits_of = {one.name: one for one in roofline(graph, limits, examples)} if limits else {}
    costs, found = _costs(graph), []
    for name in (*graph.node, LOSS_NODE, SUMS, NETWORK):
        forward, backward = (median(step[name] for step in steps) / NANO for steps in zip(*each))
        node, charged, limit = graph.node.get(name), costs.get(name), limits_of.get(name)
        found.append(
            NodeTime(
                name=name,
                layer=type(node.layer).__name__ if node else "",
                forward_seconds=forward,
                backward_seconds=backward,
                share=(forward + backward) / step_seconds,
                operations=None if charged is None else examples * _price(charged, OPS),
                tensor_operations=None if charged is None else examples * _price(charged, TENSOR_OPS),
                roofline_seconds=examples * limit.seconds if limit else None,
                bound=limit.bound if limit else "",
            )
        )
    return found


def _costs(graph: Graph) -> Mapping[str, tuple[Cost, ...]]:
    """Costs of one example by name: all that the graph counts."""
    rows = graph.rows
    sums = (rows["grad_accum"].cost,) if "grad_accum" in rows else ()
    charged = {node.name: graph.charged(node) for node in graph.nodes}
    return {**charged, LOSS_NODE: (rows["softmax_xent"].cost,), SUMS: sums}


def _price(costs: Iterable[Cost], prices: Ops) -> int:
    """Operations of one training example at these prices."""
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
