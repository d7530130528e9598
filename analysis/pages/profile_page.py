"""The page of a profile: where the time and the memory of a training step go.

Pictures come first and answer where to look; tables have all figures. Times are medians over the profiled
steps, in seconds; the page says by how much profiling itself slows a step down. `aiperf-hpc profile`
measures, `analysis.readings.profile` reads and puts into words.
"""

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
"""What a rank's memory is drawn of; the table has all rows."""


def profile_html(profiles: Sequence[Profile], name: str) -> str:
    """The page of one network on examples of each size; operations and nodes are those of the largest, which
    takes longest and is what a run at full size resembles most. `profiles` are of one network, by rising size
    of the examples, and at least one."""
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
    """A bar per phase of a step, such as the forward pass."""
    longest = max(found.phases, key=lambda part: part.seconds)
    says = (
        f"A profiled step takes {seconds_text(found.step_seconds)}; {percent(longest.share, 1)} of it is "
        f"{longest.name}."
    )
    return _times("phases", "Phases of a step", says, "phase", found.phases)


def _kinds(found: Profile) -> Picture:
    """A bar per kind of operation, from the one that takes longest."""
    first = found.kinds[0]
    says = f"{percent(first.share, 1)} of the step is {first.name}."
    return _times("kinds", "Kinds of operation", says, "kind of operation", found.kinds)


def _times(name: str, title: str, says: str, column: str, parts: Sequence[StepPart]) -> Picture:
    """Parts of a step as bars of their seconds."""
    series = {"time": ("blue", [part.seconds for part in parts])}
    return bars(name, title, says, [part.name for part in parts], series, seconds_text, _parts(column, parts))


def _nodes(found: Profile) -> Picture:
    """The layers that take longest, in the order of the network, next to what the roofline allows. Without
    ceilings of the device there is no roofline, and only measured bars are drawn."""
    known = [node for node in found.nodes if node.layer]  # without what belongs to no layer, such as the loss
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
    """One row per layer, with its times, its rate and how far it is from the roofline."""
    cells = []
    for node in found.nodes:
        seconds = node.forward_seconds, node.backward_seconds
        work = node.share, node.operations, node.ops_per_second
        limits = node.roofline_seconds, node.times_roofline
        cells.append(zip(node_cells(node), (None, None, *seconds, *work, *limits, None)))
    return Table.of(NODE_COLUMNS, cells, (False, False, *[True] * 7, False))


def _memory(found: Profile) -> Picture:
    """Memory of a rank by what holds it: as measured, as this program models it, and as the MemTracker of
    torch predicts it. Rows whose figure is unknown have no bar."""
    rows = [row for row in found.memory if row.name in MEMORY_SHOWN]
    peak = found.memory[-1]
    cells = [
        zip(memory_cells(row), (None, row.measured, row.modelled, row.predicted)) for row in found.memory
    ]
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
        Table.of(MEMORY_COLUMNS, cells, (False, True, True, True)),
    )


def _sizes(profiles: Sequence[Profile]) -> Table:
    """One row per size of the examples, for a network that was profiled at several."""
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
