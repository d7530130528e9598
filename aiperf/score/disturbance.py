"""What disturbed a run: the share of its hosts' processors that others used, and stops of its processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aiperf.journal.attempts import Leg
from aiperf.journal.replay import Replay
from aiperf.wire.reports import HostUse
from nas.frozen import frozen

MEASURED_SINCE = 2
"""Version of the rules since which runs measure what disturbs them."""
MOST_OTHERS = 0.05
"""The largest share of a host's CPU time that others may have used in a ranked run."""
LEAST_SEEN = 0.8
"""The share of the span that must have been looked at for a figure of a host to be known: the last interval
of a run is not reported."""


@frozen
class HostInterval:
    """How the processors of a host were used for some seconds."""

    host: str
    end: float
    """Seconds of its leg's clock."""
    use: HostUse

    @property
    def begin(self) -> float:
        return self.end - self.use.seconds


@frozen
class HostDisturbance:
    """What disturbed the run on one host, within the span."""

    host: str
    seen: float
    """Share of the span that was looked at, 0 to 1."""
    others: float
    """Share of the CPU time that the run could use which others used, 0 to 1. It includes `stolen`."""
    stolen: float
    """Share that the hypervisor took."""
    stopped_seconds: float
    """How long processes of the run were stopped."""

    @property
    def known(self) -> bool:
        return self.seen >= LEAST_SEEN


def disturbances(replay: Replay) -> list[HostDisturbance]:
    """One entry per host with a device, sorted by host."""
    span = replay.span_seconds
    sums: dict[str, list[float]] = {}
    for leg in replay.counted_legs:
        for ready in leg.devices.values():
            sums.setdefault(ready.host, [0.0] * 5)
        until = dict[str, float]()
        for interval in intervals(leg):
            use, host = interval.use, interval.host
            total, inside = sums[host], _share_in_span(leg, interval, until.get(host, 0.0))
            until[host] = max(until.get(host, 0.0), interval.end)
            values = (use.seconds, use.available, use.others, min(use.stolen, use.others), use.stopped)
            for index, value in enumerate(values):
                total[index] += value * inside
    return [_of(host, total, span) for host, total in sorted(sums.items())]


def intervals(leg: Leg) -> list[HostInterval]:
    """The intervals of a leg in the order in which they were reported.

    If the whole run is stopped, its master reads what was sent just before only when it continues. The next
    interval, which holds the stop, then seems to begin before that one ends: it is moved back, by at most the
    length of the stop.
    """
    found, following = list[HostInterval](), dict[str, HostInterval]()
    for event in reversed(leg.uses):
        interval = HostInterval(leg.devices[event.use.rank].host, event.end, event.use)
        after = following.get(interval.host)
        if after is not None:
            late = min(max(0.0, interval.end - after.begin), after.use.stopped)
            interval = replace(interval, end=interval.end - late)
        following[interval.host] = interval
        found.append(interval)
    return found[::-1]


def _share_in_span(leg: Leg, interval: HostInterval, before: float) -> float:
    """The share of an interval that lies in the span. What ends at `before` was looked at already, so that no
    calm moment counts several times."""
    if leg.released is None or interval.use.seconds <= 0:
        return 0.0
    inside = min(interval.end, leg.end) - max(interval.begin, leg.released, before)
    return max(0.0, inside) / interval.use.seconds


def _of(host: str, total: list[float], span: float) -> HostDisturbance:
    seconds, available, others, stolen, stopped = total
    return HostDisturbance(
        host,
        min(1.0, seconds / span) if span > 0 else 0.0,
        others / available if available > 0 else 0.0,
        stolen / available if available > 0 else 0.0,
        stopped,
    )


def most_disturbed(found: Sequence[HostDisturbance]) -> HostDisturbance | None:
    """The host of which others used most; None if it is not known of each."""
    if not all(each.known for each in found):
        return None
    return max(found, key=lambda each: each.others, default=None)
