"""Figures of a simulation next to its score: load of the master, size of the journal, traffic of the file
system, and what was lost."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from aiperf.journal.replay import Replay
from aiperf.pretending.assumptions import Assumptions, Messages
from aiperf.score.credit import credit, work
from aiperf.score.example_counts import recorded
from aiperf.simulation.simulated_world import SimulatedWorld
from aiperf.wording import percent, rate, scaled
from nas.frozen import frozen

OF_TRIALS = re.compile(rb'"type":"(Dispatched|Began|Closed|Ended)"')
"""The lines that a trial has whatever its length. The number of all others grows with time."""
TYPE_WITHIN = 80
"""Number of bytes from the start of a line within which its type ends."""


@frozen
class SizeFigures:
    """The figures of one simulated size, between release and end of the span unless stated otherwise."""

    nodes: int
    devices: int
    groups: int
    span_seconds: float
    ops_per_second: float
    """Sustained OPS."""
    trials: int
    """Number of trials that ended in time."""
    utilisation: float
    """Share of the groups' time in which they trained or validated."""
    useful: float
    """Share of the groups' time that was credited: the efficiency, if all sizes found the same networks."""
    requests_per_second: float
    """Messages that the master handled per second."""
    master_busy: float
    """Share of the span in which the master worked."""
    wait_seconds: float
    """Mean time in seconds for which a message waited for the master."""
    wait_99_seconds: float
    """99th percentile of that time."""
    journal_bytes: int
    """Size of the whole file."""
    trial_bytes: float
    """Bytes of the journal for each trial that was dispatched: its own lines."""
    other_bytes_per_hour: float
    """Bytes of the journal's other lines after the release, per hour."""
    written_bytes: int
    """Bytes of kept weights that were written to the file system."""
    read_bytes: int
    """Bytes of kept weights that were read from it."""
    data_bytes: int
    """Bytes of training images that were read from it, over all nodes."""
    data_wait: float
    """Share of the groups' time in which their steps waited for these."""
    lost_work: float
    """Share of the training and validation time that credits nothing."""
    groups_lost: int
    """Losses of groups, each time that a group was lost."""
    message_seconds: float
    """Measured CPU time on this machine for a message after which nothing was proposed."""
    proposal_seconds: float
    """The same for a new candidate, in addition to the message."""
    simulated_seconds: float
    """Time in seconds that the simulation took on this machine."""


def size_figures(
    replay: Replay, world: SimulatedWorld, journal: Path, nodes: int, took_seconds: float
) -> SizeFigures:
    """The figures of a simulated run: of its replay and journal file, and of the world that it ran in, whose
    simulation took `took_seconds` on this machine."""
    span, master = replay.span_seconds, world.clock.total
    counts = {number: recorded(story.attempts[0].dispatched) for number, story in replay.trials.items()}
    busy, useful = shares_of_time(replay)
    trials, beside = _journal_bytes(journal, replay)
    message = master.hearing_seconds / master.heard if master.heard else 0.0
    # Turns that proposed also heard a message, whose time is subtracted.
    proposing = master.proposing_seconds - message * master.proposing_heard
    waited = np.array(master.waited)
    return SizeFigures(
        nodes=nodes,
        devices=sum(map(len, world.groups)),
        groups=len(world.groups),
        span_seconds=span,
        ops_per_second=work(replay, counts, credit(replay)).operations / span if span else 0.0,
        trials=len(replay.arrivals),
        utilisation=busy,
        useful=useful,
        requests_per_second=master.requests / span if span else 0.0,
        master_busy=master.busy_seconds / span if span else 0.0,
        wait_seconds=float(waited.mean()) if len(waited) else 0.0,
        wait_99_seconds=float(np.percentile(waited, 99)) if len(waited) else 0.0,
        journal_bytes=journal.stat().st_size,
        trial_bytes=trials / max(1, len(replay.trials)),
        other_bytes_per_hour=beside / span * 3600 if span else 0.0,
        written_bytes=world.storage.bytes_written,
        read_bytes=world.storage.bytes_read,
        data_bytes=round(world.data.bytes_read),
        data_wait=world.data.waited_seconds / (span * len(world.groups)) if span else 0.0,
        lost_work=1 - useful / busy if busy else 0.0,
        groups_lost=len(replay.leg.losses),
        message_seconds=message,
        proposal_seconds=max(0.0, proposing) / max(1, master.proposed),
        simulated_seconds=took_seconds,
    )


def shares_of_time(replay: Replay) -> tuple[float, float]:
    """Shares of the groups' time in the span: that in which they trained or validated, and that which was
    credited. Both are 0 without a span. Work that began before the release or ended after the end counts with
    its part inside."""
    leg, found, credited = replay.leg, replay.pieces(), credit(replay)
    available = replay.span_seconds * leg.groups
    if leg.released is None or not available:
        return 0.0, 0.0
    inside = np.minimum(found.end, leg.end) - np.maximum(found.end - found.seconds, leg.released)
    inside = np.maximum(0.0, inside)
    counts = credited.pieces
    return float(inside.sum()) / available, float(inside[counts].sum()) / available


def columns(each: SizeFigures, assumed: Messages) -> dict[str, str]:
    """The cells of a table, by the heading of their column. `assumed`: the times that the simulation assumed,
    shown next to those measured. The order is that of the table."""
    both = each.written_bytes + each.read_bytes
    return {
        "nodes": f"{each.nodes:,}",
        "utilisation": percent(each.utilisation),
        "credited": percent(each.useful),
        "lost work": percent(each.lost_work),
        "groups lost": f"{each.groups_lost:,}",
        "trials ended": f"{each.trials:,}",
        "requests/s": f"{each.requests_per_second:,.1f}",
        "master busy": percent(each.master_busy),
        "wait for the master, mean": _seconds(each.wait_seconds),
        "wait for the master, 99th percentile": _seconds(each.wait_99_seconds),
        "time per message (assumed)": (
            f"{_seconds(each.message_seconds)} ({_seconds(assumed.master_seconds)})"
        ),
        "time per proposal (assumed)": (
            f"{_seconds(each.proposal_seconds)} ({_seconds(assumed.proposal_seconds)})"
        ),
        "journal": scaled(each.journal_bytes, "B", 3),
        "of it, per trial": scaled(each.trial_bytes, "B", 3),
        "other lines of it, per hour": scaled(each.other_bytes_per_hour, "B", 3),
        "weights written": scaled(each.written_bytes, "B", 3),
        "weights read": scaled(each.read_bytes, "B", 3),
        "both, per second": scaled(both / each.span_seconds if each.span_seconds else 0.0, "B/s", 3),
        "training images read": scaled(each.data_bytes, "B", 3),
        # Differences of times leave a rest, which is no wait.
        "time that steps waited for them": percent(max(0.0, each.data_wait)),
        "simulated in": f"{each.simulated_seconds:.1f} s",
    }


def modelled(assumed: Assumptions) -> str:
    """What a simulation models in addition to the master, the search and the journal, which are real."""
    spread, heat = assumed.spread, assumed.heat
    differ = f"(spread.device {spread.device:g}, spread.step {spread.step:g})"
    waits = f"a step waits for the slowest device of its group {differ}"
    equal = "the devices of a node are equal"
    falls = f"clocks fall with heat by {percent(heat.slowdown)}, 63 % of it in {heat.seconds:g} s"
    parts = [
        "modelled: steps, all-reduces, the file system (weights, training images), failures, messages",
        waits if spread.device or spread.step else equal,
        falls if heat.slowdown else "clocks do not fall with heat",
    ]
    return "; ".join(parts)


def spread_rows(each: Sequence[SizeFigures]) -> list[list[str]]:
    """The rows of a table, headings first, of how much the sustained OPS of equal sizes differ."""
    rows = [["nodes", "simulations", "median", "least", "greatest", "variation"]]
    for nodes in sorted({one.nodes for one in each}):
        rates = [one.ops_per_second for one in each if one.nodes == nodes]
        spread = statistics.stdev(rates) / statistics.fmean(rates) if len(rates) > 1 and max(rates) else None
        of_all = "unknown" if spread is None else percent(spread, 2)
        ends = [rate(statistics.median(rates)), rate(min(rates)), rate(max(rates))]
        rows.append([f"{nodes:,}", str(len(rates)), *ends, of_all])
    return rows


def _seconds(value: float) -> str:
    """A time with three digits, in s, ms or µs."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-6:.3g} µs"


def _journal_bytes(path: Path, replay: Replay) -> tuple[int, int]:
    """Bytes of the lines of trials, and of the others after the release. The type of a line is among its
    first bytes, so that no line of a large journal has to be parsed."""
    trials = beside = 0
    released = False
    with path.open("rb") as file:
        for line in file:
            head = line[:TYPE_WITHIN]
            if OF_TRIALS.search(head):
                trials += len(line)
            elif released:
                beside += len(line)
            released = released or b'"type":"Released"' in head
    return trials, beside
