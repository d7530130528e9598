"""Which hosts exchange data with each other when the fabric is measured, and what follows from its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from math import fsum

from aiperf.wire.reports import Coupled, Fabric, FabricNode, FabricPart, TimedAllReduce

DIGITS = 5
"""Significant digits of rates and times that are kept."""
MOST_DETAILED, MOST_PAIRED, MOST_REASONS = 4096, 24576, 64
"""Numbers of hosts above which all-reduces within them, then also the rates of pairs, are not kept, and of
which the reasons are: a line of the journal has at most 4 MiB (`nas.bounded.LONGEST_LINE`)."""

SHOWN = 5
"""Most hosts that are named in one reason."""


def rounds(hosts: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The pairs of hosts of each round, by position. Every host exchanges data with the one at half of the
    machine's width, then at a quarter and so on, all pairs at once, so the first round crosses the bisection.

    Hosts that are left over are paired with each other. Of an odd number one host rests in each round,
    another one in the next; one more round at half of the width then has those that rested too.
    """
    distances = list[int]()
    while (distance := hosts >> (len(distances) + 1)) > 0:
        distances.append(distance)
    if hosts % 2 and distances:
        distances.append(distances[0])
    return tuple(_round(hosts, distance, index) for index, distance in enumerate(distances))


def _round(hosts: int, distance: int, index: int) -> tuple[tuple[int, int], ...]:
    order = [(host + index) % hosts for host in range(hosts)] if hosts % 2 else list(range(hosts))
    places = [place for place in range(hosts - distance) if place // distance % 2 == 0]
    paired = {place for first in places for place in (first, first + distance)}
    left = [place for place in range(hosts) if place not in paired]
    half = len(left) // 2
    pairs = [(first, first + distance) for first in places] + list(zip(left[:half], left[half:]))
    return tuple((order[first], order[second]) for first, second in pairs)


def assembled(parts: Collection[FabricPart], ranks: Collection[int]) -> Fabric:
    """The fabric from the parts of these ranks, of which some may be missing or incomplete.

    A rate of a host is the sum over its ranks; of a pair the lower one of both ends counts. The hosts that
    came least far are those that the others waited for.
    """
    by_host: dict[int, list[FabricPart]] = {}
    for part in sorted(parts, key=lambda part: part.rank):
        by_host.setdefault(part.node, []).append(part)
    least = min((part.done for part in parts if part.reason), default=0)
    detailed, paired = len(by_host) <= MOST_DETAILED, len(by_host) <= MOST_PAIRED
    nodes = [
        FabricNode(
            own[0].host,
            _kept(own[0].within) if detailed else (),
            own[0].rdma_ports,
            next(
                (f"rank {part.rank}, {part.reason}" for part in own if part.reason and part.done == least), ""
            ),
        )
        for _, own in sorted(by_host.items())
    ]
    for place in [place for place, node in enumerate(nodes) if node.reason][MOST_REASONS:]:
        nodes[place] = replace(nodes[place], reason="as others")
    rates = {
        node: [sum(rate) for rate in zip(*(part.pairs for part in own))] for node, own in by_host.items()
    }
    hosts = max(by_host, default=-1) + 1
    known = min((len(each) for each in rates.values()), default=0) if len(by_host) == hosts and paired else 0
    return Fabric(
        ranks=len(ranks),
        backend=next((part.backend for part in parts if part.backend), ""),
        nodes=tuple(nodes),
        over_all=_kept(min(parts, key=lambda part: part.rank).over_all) if parts else (),
        rounds=tuple(
            tuple(_rounded(min(rates[first][index], rates[second][index])) for first, second in pairs)
            for index, pairs in enumerate(rounds(hosts)[:known] if known else ())
        ),
        transports=dict(sorted(sum((Counter(part.transports) for part in parts), Counter()).items())),
        seconds=max((part.seconds for part in parts), default=0.0),
        missing=tuple(sorted(set(ranks) - {part.rank for part in parts})),
        coupled=_coupled(sorted(parts, key=lambda part: part.rank)),
    )


def _coupled(parts: Sequence[FabricPart]) -> Coupled | None:
    """The coupled control from the parts in the order of their ranks; None if no rank came so far."""
    timed = [part.coupled for part in parts if part.coupled is not None]
    if not timed:
        return None
    least = min((each.done for each in timed if each.reason), default=0)
    hosts = dict[str, str]()
    for part in parts:
        own = part.coupled
        if own is None:
            hosts.setdefault(part.host, f"rank {part.rank}, {part.reason}")
        elif own.reason and own.done == least:
            hosts.setdefault(part.host, f"rank {part.rank}, {own.reason}")
    told = [f"{host}: {reason}" for host, reason in list(hosts.items())[:SHOWN]]
    more = [f"and {len(hosts) - SHOWN:,} more"] if len(hosts) > SHOWN else []
    rates = [each.batch_size * each.steps / each.alone_seconds for each in timed if each.alone_seconds > 0]
    return Coupled(
        timed[0].network,
        timed[0].size,
        timed[0].batch_size,
        timed[0].steps,
        _rounded(timed[0].seconds),
        _rounded(fsum(rates)),
        "; ".join([*told, *more]),
    )


def _kept(measured: tuple[TimedAllReduce, ...]) -> tuple[TimedAllReduce, ...]:
    return tuple(TimedAllReduce(each.bytes, _rounded(each.seconds)) for each in measured)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
