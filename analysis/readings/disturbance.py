"""What disturbed a run, in words."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.axis import SpanAxis
from aiperf.journal.replay import Replay
from aiperf.score.disturbance import (
    MEASURED_SINCE,
    MOST_OTHERS,
    HostDisturbance,
    disturbances,
    intervals,
    most_disturbed,
)
from aiperf.wording import counted, percent
from analysis.readings.robust import median
from analysis.readings.steadiness import time_lost
from nas.frozen import frozen

LEAST_STOLEN = 0.005
"""Least share of the CPU time that a hypervisor took for it to be named."""
LEAST_STOP_SECONDS = 1.0
"""Shortest stop of a run's processes that is named: shorter ones are the scheduler's."""
LEAST_LOST = 0.08
"""Least share of time lost by unequal steps that is named; docs/machine.md has what runs had."""
MOST_BINS = 240
"""Most bins of the figure, which is some hundreds of pixels wide."""


@frozen
class OthersOverTime:
    """Share of the CPU time that other programs used on the hosts, in bins of the span. NaN where no host
    reported."""

    edges: NDArray[np.float64]
    """Seconds of the span; one more than bins."""
    most: NDArray[np.float64]
    """The share on the host of which others used most."""
    median: NDArray[np.float64]
    hosts: int
    """Number of hosts that reported."""


def others_over_time(replay: Replay) -> OthersOverTime | None:
    """None for a run that did not measure it."""
    axis, by_host = SpanAxis(replay.legs), dict[str, list[tuple[float, float, float]]]()
    for leg in replay.counted_legs:
        for interval in intervals(leg):
            use, begin, end = interval.use, axis.at(leg, interval.begin), axis.at(leg, interval.end)
            if end > begin and use.available > 0:
                found = by_host.setdefault(interval.host, [])
                found.append((begin, end, use.others / use.available))
    if not by_host:
        return None
    lengths = [end - begin for found in by_host.values() for begin, end, _ in found]
    bins = int(np.clip(round(replay.span_seconds / median(lengths)), 1, MOST_BINS))
    edges = np.linspace(0.0, replay.span_seconds, bins + 1)
    shares = np.array([_binned(found, edges) for found in by_host.values()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a bin in which no host reported stays NaN
        return OthersOverTime(edges, np.nanmax(shares, axis=0), np.nanmedian(shares, axis=0), len(by_host))


def _binned(found: Sequence[tuple[float, float, float]], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean share in each bin, by how much of an interval lies in it."""
    begins, ends, shares = np.array(found).T
    inside = np.minimum(ends[:, None], edges[1:]) - np.maximum(begins[:, None], edges[:-1])
    weights = np.maximum(inside, 0.0)
    total = weights.sum(axis=0)
    return np.where(total > 0, (weights * shares[:, None]).sum(axis=0) / np.maximum(total, 1e-12), np.nan)


def disturbance_text(replay: Replay) -> list[str]:
    """A line each for other programs, for stops and for unequal steps; none for a run that was not measured,
    and in older journals."""
    if replay.opened.rules < MEASURED_SINCE or not (found := disturbances(replay)):
        return []
    return [*_others_text(found), *_unequal_text(time_lost(replay))]


def _unequal_text(lost: float | None) -> list[str]:
    """A line if steps of one network took much longer at some times than at others."""
    if lost is None or lost < LEAST_LOST:
        return []
    saved = f"{percent(lost, 1)} of their time would have been saved at the rate of the fastest tenth"
    return [f"steps of one network did not take equally long: {saved}"]


def _others_text(found: Sequence[HostDisturbance]) -> list[str]:
    """A line for other programs, and one for each host with stops."""
    worst = most_disturbed(found)
    if worst is None:
        return ["unknown (too little of the span was sampled)"]
    taken = f"{percent(worst.others, 1)} of {{}} CPU time went to other programs"
    if worst.stolen >= LEAST_STOLEN:
        taken += f", including {percent(worst.stolen, 1)} to the hypervisor"
    if len(found) == 1:
        lines = [taken.format("this host's")]
    else:
        above = sum(each.others > MOST_OTHERS for each in found)
        hosts = f"{above} of {counted(len(found), 'host')} above {percent(MOST_OTHERS, 0)}"
        lines = ["at most " + taken.format("a host's") + f" ({worst.host}; {hosts})"]
    for each in found:
        if each.stopped_seconds >= LEAST_STOP_SECONDS:
            where = f" on {each.host}" if len(found) > 1 else ""
            lines.append(f"processes of the run were stopped for {each.stopped_seconds:.0f} s{where}")
    return lines
