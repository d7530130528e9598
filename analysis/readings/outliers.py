"""Slow ranks before the span, by equal work, and slow groups within it, by comparable work.

A rate is an outlier when it lies below the median by more than three robust standard deviations and by more
than 5 %. The deviation is that between ranks or groups, and never taken as smaller than what a single one
shows by itself: its own windows before the span, its own trials within it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from aiperf.journal.attempts import Leg
from aiperf.journal.axis import SpanAxis
from aiperf.journal.replay import Replay
from aiperf.wire.reports import Ceiling, Rate, Ready
from aiperf.wording import clock, percent, scaled
from analysis.readings.group_speeds import BlockTimes
from analysis.readings.robust import LEAST_NUMBER, all_known, below
from analysis.readings.usage import DeviceUse, Usage
from nas.frozen import frozen

WINDOW_SECONDS = 60.0
MOST_WINDOWS = 240
"""Windows are this long, and longer in a run that would have more than `MOST_WINDOWS` side by side."""
BEFORE = "before the span"
FEW_WINDOWS = 4
"""With at most this number of windows, one slow window is enough to name a group: chance names none in so
few."""


@frozen
class Outlier:
    """One rank or group that was slow, and why that is believed."""

    hosts: tuple[str, ...]
    devices: tuple[str, ...]
    """Names of its devices; that of a single one includes its identity, which tells it from others of its
    host."""
    who: str
    """rank 3, or group 2."""
    when: str
    """before the span, or the times within it."""
    share: float
    """Its rate as a share of the median rate."""
    evidence: str


def outliers(replay: Replay, usage: Usage | None = None) -> tuple[Outlier, ...]:
    """Slow ranks and groups of all counted legs, the slowest first; one that was slow in several legs is
    named for the worst. `usage` adds what the devices' sensors report."""
    worst: dict[tuple[str, tuple[str, ...]], Outlier] = {}
    for leg in replay.counted_legs:
        for found in (*_before(leg), *_during(replay, leg)):
            outlier = _with_sensors(found, leg, usage)
            kind = f"{outlier.who} {outlier.when == BEFORE}", outlier.hosts
            if kind not in worst or outlier.share < worst[kind].share:
                worst[kind] = outlier
    return tuple(sorted(worst.values(), key=lambda outlier: outlier.share))


def outlier_text(outlier: Outlier) -> str:
    """ "rank 3 on node7 (NVIDIA H200 1f3a…): …"."""
    where = ", ".join(outlier.hosts)
    return f"{outlier.who} on {where} ({', '.join(outlier.devices)}): {outlier.evidence}, {outlier.when}"


def _before(leg: Leg) -> Iterator[Outlier]:
    """Slow ranks, by equal work on devices of one name; a rank that is slow in several kinds is named for the
    worst."""
    by_device: dict[str, list[Ceiling]] = {}
    for ceiling in leg.ceilings.values():
        by_device.setdefault(ceiling.device, []).append(ceiling)
    worst: dict[int, Outlier] = {}
    ready = leg.devices
    for device, ceilings in by_device.items():
        if len(ceilings) < LEAST_NUMBER:
            continue
        for what, unit, rates in _kinds(ceilings):
            values = np.array([one.typical for one in rates])
            middle = float(np.median(values))
            if middle <= 0:  # a journal may hold any number
                continue
            own = np.array([one.spread for one in rates])
            for index in below(np.log(np.maximum(values, 1e-300)), own):
                share = float(values[index]) / middle
                ceiling = ceilings[index]
                outlier = Outlier(
                    hosts=(ceiling.host,),
                    devices=(_spoken(device, ready.get(ceiling.rank)),),
                    who=f"rank {ceiling.rank}",
                    when=BEFORE,
                    share=share,
                    evidence=f"{percent(1 - share, 0)} below the median in {what}, "
                    f"{scaled(float(values[index]), unit)} against {scaled(middle, unit)}",
                )
                if ceiling.rank not in worst or share < worst[ceiling.rank].share:
                    worst[ceiling.rank] = outlier
    yield from worst.values()


def _kinds(ceilings: Sequence[Ceiling]) -> Iterator[tuple[str, str, list[Rate]]]:
    """Each kind of work that all of these ranks measured: its name, unit and rates."""
    kinds: Mapping[str, tuple[str, list[Rate | None]]] = {
        "matrix products": ("OPS", _products(ceilings)),
        "copying memory": ("B/s", [one.copy for one in ceilings]),
        "copying from the host": ("B/s", [one.upload for one in ceilings]),
        "summing in the group": ("B/s", [one.all_reduce for one in ceilings]),
    }
    for what, (unit, rates) in kinds.items():
        if (known := all_known(rates)) is not None:
            yield what, unit, known


def _products(ceilings: Sequence[Ceiling]) -> list[Rate | None]:
    """Rates with the most threads that all of them were measured with; None for each if no number is
    common."""
    common = set(ceilings[0].products).intersection(*(one.products for one in ceilings))
    count = max(common, key=lambda count: (len(count), count), default="")
    return [one.products.get(count) for one in ceilings]


def _during(replay: Replay, leg: Leg) -> Iterator[Outlier]:
    """Slow groups, by comparable work in windows of a minute; a long run has longer windows."""
    work = BlockTimes.of(replay, leg)
    if work is None:
        return
    span = SpanAxis(replay.legs)
    begin = float(span.begins[leg.index])
    length = max(WINDOW_SECONDS, leg.span_seconds / MOST_WINDOWS)
    starts = np.arange(begin, max(begin + 1e-9, begin + leg.span_seconds - length / 3), length / 2)
    slow: dict[int, list[tuple[float, float]]] = {}
    for start in starts:
        for group, share in work.below(float(start), float(start) + length):
            slow.setdefault(group, []).append((float(start), share))
    for group, times in slow.items():
        # Half a window later it must be seen again, unless there is nothing later, or not much at all.
        twice = any(abs(b - a - length / 2) < 1e-6 for (a, _), (b, _) in pairwise(times))
        if twice or len(starts) <= FEW_WINDOWS or times[-1][0] == starts[-1]:
            yield _of_group(leg, group, times, length, begin + leg.span_seconds)


def _of_group(
    leg: Leg, group: int, times: Sequence[tuple[float, float]], length: float, end: float
) -> Outlier:
    """The outlier of a group, with the whole time in which it was slow and its lowest share."""
    ready = _ready(leg, group)
    devices = [one.device for one in ready] if len(ready) > 1 else [_spoken(one.device, one) for one in ready]
    share = min(share for _, share in times)
    first, last = times[0][0], min(times[-1][0] + length, end)
    return Outlier(
        hosts=tuple(dict.fromkeys(one.host for one in ready)),
        devices=tuple(dict.fromkeys(devices)),
        who=f"group {group}",
        when=f"between {clock(first)} and {clock(last)} of the span",
        share=share,
        evidence=f"{percent(1 - share, 0)} below the median of the groups' rates on comparable work",
    )


def _spoken(name: str, ready: Ready | None) -> str:
    """ "NVIDIA H200 1f3a…", by which it can be found among eight of that name."""
    return f"{name} {ready.device_id if ready else ''}".rstrip()


def _ready(leg: Leg, group: int) -> list[Ready]:
    """The ranks of a group as they reported ready, in order."""
    return [leg.devices[rank] for rank in sorted(leg.began.groups[group]) if rank in leg.devices]


def _with_sensors(outlier: Outlier, leg: Leg, usage: Usage | None) -> Outlier:
    """The outlier with what the sensors of its devices report, compared with those of the others."""
    if usage is None:
        return outlier
    if outlier.who.startswith("group"):
        ranks = _ready(leg, int(outlier.who.removeprefix("group ")))
    else:
        ranks = [ready for rank, ready in leg.devices.items() if f"rank {rank}" == outlier.who]
    own = {(one.host, one.device_id) for one in ranks}
    mine = [use for use in usage.devices if (use.host, use.device) in own]
    others = [use for use in usage.devices if (use.host, use.device) not in own]
    facts = list(_sensor_facts(mine, others))
    return replace(outlier, evidence="; ".join([outlier.evidence, *facts])) if facts else outlier


def _sensor_facts(mine: Sequence[DeviceUse], others: Sequence[DeviceUse]) -> Iterator[str]:
    """What the sensors say about a slow device: its clock, and whether its driver held it back."""
    clocks = [use.mean_clock_hertz for use in mine if use.mean_clock_hertz is not None]
    usual = [use.mean_clock_hertz for use in others if use.mean_clock_hertz is not None]
    if clocks and usual:
        yield f"clock {scaled(min(clocks), 'Hz')} against {scaled(float(np.median(usual)), 'Hz')}"
    held: dict[str, float] = {}
    for use in mine:
        for reason, seconds in (use.throttled_seconds or {}).items():
            held[reason] = max(held.get(reason, 0.0), seconds)
    yield from (f"held back for {clock(seconds)} by: {reason}" for reason, seconds in held.items())
