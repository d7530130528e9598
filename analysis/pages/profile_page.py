"""The page of a profile: where the time and the memory of a training step go."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.wording import bytes_text, percent, rate
from analysis.exports.profile_text import (
    MEMORY_COLUMNS,
    MEMORY_NOTE,
    NODE_COLUMNS,
    NODES_NOTE,
    NODES_SHOWN,
    PHASES_NOTE,
    facts,
    memory_cells,
    node_cells,
    seconds_text,
    shape_text,
    summary,
)
from analysis.pages.figures.bars import bars
from analysis.pages.figures.picture import Picture
from analysis.pages.page import drawn, page
from analysis.readings.profile import Profile, StepPart
from analysis.table import Cell, Table

MEMORY_SHOWN = ("weights", "gradients", "optimizer state", "activations", "peak")


def profile_html(profiles: Sequence[Profile], name: str) -> str:
    """The page of one network on examples of each size; operations and nodes are those of the largest."""
    largest = profiles[-1]
    return page(
        "profile.html",
        None,
        name=name,
        subtitle=f"{largest.recorded.device} · {largest.recorded.format} · examples of {shape_text(largest)}",
        facts=Table(("", ""), [*facts(largest, name), *summary(largest)], (False, False)),
        phases=drawn(_phases(largest)),
        kinds=drawn(_kinds(largest)),
        operations=_parts("operation", largest.operations),
        nodes=drawn(_nodes(largest)),
        node_table=_node_table(largest),
        memory=[drawn(_memory(profile)) for profile in profiles],
        sizes=_sizes(profiles) if len(profiles) > 1 else None,
        notes={"phases": PHASES_NOTE, "nodes": NODES_NOTE, "memory": MEMORY_NOTE},
        traces=[profile.recorded.trace for profile in profiles if profile.recorded.trace],
    )


def _phases(found: Profile) -> Picture:
    longest = max(found.phases, key=lambda part: part.seconds)
    return bars(
        "phases",
        "Phases of a step",
        f"A profiled step takes {seconds_text(found.step_seconds)}; {percent(longest.share, 1)} of it is "
        f"{longest.name}.",
        [part.name for part in found.phases],
        {"time": ("blue", [part.seconds for part in found.phases])},
        seconds_text,
        _parts("phase", found.phases),
    )


def _kinds(found: Profile) -> Picture:
    first = found.kinds[0]
    return bars(
        "kinds",
        "Kinds of operation",
        f"{percent(first.share, 1)} of the step is {first.name}.",
        [part.name for part in found.kinds],
        {"time": ("blue", [part.seconds for part in found.kinds])},
        seconds_text,
        _parts("kind of operation", found.kinds),
    )


def _nodes(found: Profile) -> Picture:
    known = [node for node in found.nodes if node.layer]
    kept = sorted(known, key=lambda node: node.seconds, reverse=True)[:NODES_SHOWN]
    shown = [node for node in known if node in kept]
    series: dict[str, tuple[str, Sequence[float | None]]] = {
        "measured": ("blue", [node.seconds for node in shown])
    }
    if found.limits:
        series["by the roofline"] = ("amber", [node.roofline_seconds for node in shown])
    slowest = kept[0]
    times = slowest.times_roofline
    beside = "" if times is None else f", {times:.3g} times as long as the ceilings allow"
    return bars(
        "nodes",
        "Layers: measured and by the roofline",
        f"Of {len(known)} layers the {len(shown)} that take longest. {slowest.name} takes "
        f"{seconds_text(slowest.seconds)}{beside}.",
        [node.name for node in shown],
        series,
        seconds_text,
    )


def _node_table(found: Profile) -> Table:
    keys = [
        [
            None,
            None,
            node.forward_seconds,
            node.backward_seconds,
            node.share,
            node.operations,
            node.ops_per_second,
            node.roofline_seconds,
            node.times_roofline,
            None,
        ]
        for node in found.nodes
    ]
    rows = [node_cells(node) for node in found.nodes]
    return Table(tuple(NODE_COLUMNS), rows, (False, False, *[True] * 7, False), keys)


def _memory(found: Profile) -> Picture:
    rows = [row for row in found.memory if row.name in MEMORY_SHOWN]
    peak = found.memory[-1]
    cells = [memory_cells(row) for row in found.memory]
    keys = [[None, row.measured, row.modelled, row.predicted] for row in found.memory]
    return bars(
        f"memory-{found.size}",
        f"Memory of a rank, examples of {shape_text(found)}",
        f"The peak is {bytes_text(peak.measured or 0)}; `run --dry-run` predicts "
        f"{'an unknown amount' if peak.modelled is None else bytes_text(peak.modelled)}.",
        [row.name for row in rows],
        {
            "measured": ("blue", [row.measured for row in rows]),
            "modelled": ("amber", [row.modelled for row in rows]),
            "predicted": ("sky", [row.predicted for row in rows]),
        },
        bytes_text,
        Table(tuple(MEMORY_COLUMNS), cells, (False, True, True, True), keys),
    )


def _sizes(profiles: Sequence[Profile]) -> Table:
    rows = [
        [
            f"{found.size:,}",
            seconds_text(found.plain_seconds),
            rate(found.ops_per_second),
            seconds_text(found.evaluate_seconds),
            *(memory_cells(row)[1] for row in found.memory if row.name in ("activations", "peak")),
        ]
        for found in profiles
    ]
    columns = ("size", "plain step", "OPS", "validation of one", "activations", "peak")
    return Table(columns, rows, (True,) * len(columns))


def _parts(title: str, parts: Sequence[StepPart]) -> Table:
    """The table of parts of a step, with the number of calls if it is counted."""
    counted = any(part.calls is not None for part in parts)
    cells: list[list[Cell]] = [
        [
            part.name,
            *([(f"{part.calls:,}", part.calls)] if part.calls is not None else []),
            (seconds_text(part.seconds), part.seconds),
            (percent(part.share), part.share),
        ]
        for part in parts
    ]
    columns = (title, *(["calls"] if counted else []), "time", "share")
    return Table.of(columns, cells, (False, *[True] * (len(columns) - 1)))
