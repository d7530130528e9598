"""A profile as text for a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from aiperf.wording import bytes_text, counted, percent, rate, scaled
from analysis.readings import roofline
from analysis.readings.profile import MemoryRow, NodeTime, Profile, StepPart
from analysis.table import aligned

FORM = "aiperf-hpc/profile/1"
"""Name and version of the form of the JSON."""
NODES_SHOWN, OPERATIONS_SHOWN = 20, 10
"""Most rows on a terminal: those that take longest. JSON and page have all."""
PHASES_NOTE = (
    "Each moment is counted in one row. A phase with all-reduce is time in which both worked; all-reduce\n"
    "alone is time in which the step waited for it."
)
"""Explanation below the table of phases; the page has the same."""
NODES_NOTE = (
    "Time of a node is the median of the profiled steps. Operations are counted from the architecture,\n"
    "forward and backward. Roofline: as long as the measured ceilings allow, if nothing is found in a cache."
)
"""Explanation below the table of nodes."""
MEMORY_NOTE = (
    "Measured: what torch allocated. Modelled: as `run --dry-run` estimates it. Predicted: by MemTracker,\n"
    "of torch, at the peak, with temporary tensors among the activations."
)
"""Explanation below the table of memory."""


def profile_text(profiles: Sequence[Profile], trial: str) -> str:
    """The profile of one network on examples of each size; operations and nodes are those of the largest.
    `trial` is what was profiled, in words."""
    largest = profiles[-1]
    whole = ["step", seconds_text(largest.step_seconds), percent(1.0, 1)]
    longest = [
        [part.name, f"{part.calls:,}", *_part(part)[1:]] for part in largest.operations[:OPERATIONS_SHOWN]
    ]
    parts = [
        _dotted(facts(largest, trial)),
        _sizes(profiles) if len(profiles) > 1 else "",
        f"Examples of {shape_text(largest)}\n{_dotted(summary(largest))}",
        aligned([["phase", "time", "share"], *map(_part, largest.phases), whole]),
        PHASES_NOTE,
        aligned([["kind of operation", "time", "share"], *map(_part, largest.kinds)]),
        aligned([["longest operations", "calls", "time", "share"], *longest]),
        aligned([NODE_COLUMNS, *map(node_cells, _longest(largest))]),
        NODES_NOTE,
        aligned([MEMORY_COLUMNS, *map(memory_cells, largest.memory)]),
        MEMORY_NOTE,
    ]
    # Without the table of sizes if there is one size only.
    return "\n\n".join(filter(None, parts))


NODE_COLUMNS = [
    *("node", "layer", "forward", "backward", "share", "operations", "OPS"),
    *("roofline", "measured / roofline", "bound by"),
]
"""Headings of the table of nodes."""
MEMORY_COLUMNS = ["memory of a rank", "measured", "modelled", "predicted"]
"""Headings of the table of memory."""


def node_cells(node: NodeTime) -> list[str]:
    """A row of NODE_COLUMNS; what is not known or not modelled is empty."""
    times = node.times_roofline
    return [
        node.name,
        node.layer,
        seconds_text(node.forward_seconds),
        seconds_text(node.backward_seconds),
        percent(node.share, 1),
        "" if node.operations is None else scaled(node.operations, "OP", 3),
        "" if node.ops_per_second is None else scaled(node.ops_per_second, "OPS", 3),
        "" if node.roofline_seconds is None else seconds_text(node.roofline_seconds),
        "" if times is None else f"{times:,.2f}",
        node.bound,
    ]


def memory_cells(row: MemoryRow) -> list[str]:
    """A row of MEMORY_COLUMNS."""
    values = (row.measured, row.modelled, row.predicted)
    return [row.name, *("" if value is None else bytes_text(value) for value in values)]


def facts(found: Profile, trial: str) -> list[tuple[str, str]]:
    """What was profiled, where and how."""
    recorded, example = found.recorded, found.graph.head.example
    ranks = "1 rank" if recorded.ranks == 1 else f"the first of {recorded.ranks} ranks (DDP)"
    ceilings, measured = found.limits, "not measured"
    if ceilings is not None:
        memory = scaled(ceilings.bytes_per_second, "B/s")
        measured = f"{rate(ceilings.ops_per_second)} of matrix products, {memory} of memory"
    threads = "1 thread" if recorded.threads == 1 else f"{recorded.threads} threads"
    return [
        ("network", f"{trial}, {found.graph.num_parameters:,} parameters, {len(found.graph.nodes)} nodes"),
        ("examples", f"{recorded.examples} {example}s of {shape_text(found)} per step and rank"),
        ("device", f"{recorded.device}, {threads}, {recorded.format}; {ranks}"),
        (
            "software",
            f"torch {recorded.software.get('torch', 'unknown')}; eager steps, whatever engine the run used",
        ),
        ("ceilings", measured),
    ]


def shape_text(found: Profile) -> str:
    """Shape of an example: "64 positions", "3 × 224 × 224"."""
    shape = found.graph.input
    return f"{shape[0]:,} positions" if len(shape) == 1 else " × ".join(map(str, shape))


def summary(found: Profile) -> list[tuple[str, str]]:
    """The figures that stand for the whole step. Rates are of plain steps: profiling slows a step down."""
    recorded, example = found.recorded, found.graph.head.example
    plain, profiled, one = map(
        seconds_text, (found.plain_seconds, found.step_seconds, found.evaluate_seconds)
    )
    examples_per_second = f"{recorded.examples / found.plain_seconds:,.4g} {example}s per second"
    pairs = f"median of {counted(len(recorded.plain_seconds), 'pair')}"
    rows = f"the rows are {percent(found.stopwatch_share, 2)} of the stopwatch's time"
    validated = f"{recorded.validated} {example}s, not profiled"
    return [
        ("plain step", f"{plain}: {examples_per_second}, {rate(found.ops_per_second)}"),
        ("profiled step", f"{profiled}: {found.slowdown:.3f} times a plain one ({pairs}); {rows}"),
        ("validation", f"{one} per {example}, {rate(found.evaluate_ops_per_second)} ({validated})"),
    ]


def seconds_text(seconds: float) -> str:
    """As of the roofline; a pass that a node does not have takes 0."""
    return roofline.seconds_text(seconds) if seconds else "0"


def _dotted(rows: Sequence[tuple[str, str]]) -> str:
    """Names and texts, with dots between them."""
    return "\n".join(f"{name + ' ':.<14} {text}" for name, text in rows)


def _sizes(profiles: Sequence[Profile]) -> str:
    """A row for each size. What is modelled and predicted needs no device, so it is next to what was
    measured."""
    without_a_device = ["modelled", "predicted"]
    rows = [["size", "plain step", "OPS", "activations", *without_a_device, "peak", *without_a_device]]
    for found in profiles:
        memory = {row.name: memory_cells(row) for row in found.memory}
        activations, peak = memory["activations"], memory["peak"]
        speed = seconds_text(found.plain_seconds), rate(found.ops_per_second)
        rows.append([f"{found.size:,}", *speed, *activations[1:], *peak[1:]])
    return aligned(rows)


def _part(part: StepPart) -> list[str]:
    """Its name, time and share of the step."""
    return [part.name, seconds_text(part.seconds), percent(part.share, 1)]


def _longest(found: Profile) -> list[NodeTime]:
    """The nodes that take longest, in the order of the graph."""
    # Chosen by their time, but shown in the order in which data passes through them.
    kept = sorted(found.nodes, key=lambda node: node.seconds, reverse=True)[:NODES_SHOWN]
    return [node for node in found.nodes if node in kept]


def profile_json(profiles: Sequence[Profile], trial: str) -> dict[str, Any]:
    """All that the text shows, and the rows that it leaves out."""
    return {"form": FORM, "network": trial, "sizes": [_size_json(found) for found in profiles]}


def _size_json(found: Profile) -> dict[str, Any]:
    """The profile on examples of one size; seconds and bytes."""
    recorded = found.recorded
    return {
        "size": found.size,
        "graph_key": found.graph.key,
        "device": recorded.device,
        "threads": recorded.threads,
        "format": recorded.format,
        "ranks": recorded.ranks,
        "examples": recorded.examples,
        "software": dict(recorded.software),
        "ceilings": asdict(recorded.ceilings) if recorded.ceilings else None,
        "plain_seconds": list(recorded.plain_seconds),
        "profiled_seconds": list(recorded.profiled_seconds),
        "profiled_over_plain": found.slowdown,
        "step_seconds": found.step_seconds,
        "rows_over_stopwatch": found.stopwatch_share,
        "ops_per_second": found.ops_per_second,
        "validation": {
            "examples": recorded.validated,
            "seconds": recorded.validate_seconds,
            "ops_per_second": found.evaluate_ops_per_second,
        },
        "phases": [asdict(part) for part in found.phases],
        "kinds": [asdict(part) for part in found.kinds],
        "operations": [asdict(part) for part in found.operations],
        "nodes": [
            asdict(node) | {"ops_per_second": node.ops_per_second, "times_roofline": node.times_roofline}
            for node in found.nodes
        ],
        "memory": [asdict(row) for row in found.memory],
        "trace": recorded.trace or None,
    }
