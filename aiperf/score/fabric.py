"""What the measured fabric says: the bus bandwidth of all-reduces, and which pairs and hosts are slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from aiperf.journal.replay import Replay
from aiperf.wire.fabric import rounds
from aiperf.wire.messages import Fabric, TimedAllReduce

MEASURED_SINCE = 2
"""Version of the rules since which runs measure the fabric."""
SLOW = 0.5
"""Share of the median of its round below which a pair is slow."""
LEAST_PAIRS = 4
"""Fewest pairs of a round among which a slow one is named: of three, one is far from the median by chance."""
SOCKETS = ("NET/Socket", "sockets on ")
"""How the transports begin that are no RDMA, of NCCL and of Gloo."""


@dataclass(frozen=True)
class SlowPair:
    """A pair of hosts that exchanged data slowly."""

    round: int
    """Index of the round."""
    hosts: tuple[str, str]
    bytes_per_second: float
    median: float
    """That of the round, in bytes per second."""


@dataclass(frozen=True)
class SlowHost:
    """A host of which most pairs are slow."""

    host: str
    rounds: int
    """Number of rounds in which its pair is slow."""
    of: int
    """Number of rounds in which it had one that could be judged."""
    slowest: SlowPair


def fabric_of(replay: Replay) -> Fabric | None:
    """That of the first counted leg which measured it; None if none did."""
    return next((leg.fabric for leg in replay.counted_legs if leg.fabric is not None), None)


def is_known(fabric: Fabric) -> bool:
    """Whether every rank did its part to the end, and every figure that follows is there."""
    expected, hosts = rounds(len(fabric.nodes)), len(fabric.nodes)
    figures = [each.seconds for each in fabric.over_all] + [rate for each in fabric.rounds for rate in each]
    return (
        fabric.whole
        and [len(pairs) for pairs in expected] == [len(each) for each in fabric.rounds]
        and bool(fabric.over_all if hosts > 1 else fabric.nodes and fabric.nodes[0].within)
        and all(figure > 0 for figure in figures)
    )


def bus_bandwidth(measured: TimedAllReduce, ranks: int) -> float:
    """Bytes per second by which an all-reduce uses each link, whatever the number of ranks: size over time,
    times 2(n - 1)/n (PERFORMANCE.md of nccl-tests). 0 if the time is not positive."""
    if measured.seconds <= 0 or ranks <= 0:  # a journal may hold any number
        return 0.0
    return 2 * (ranks - 1) / ranks * measured.bytes / measured.seconds


def within_hosts(fabric: Fabric) -> list[tuple[str, TimedAllReduce, float]]:
    """For each host with several ranks its largest all-reduce, and the bus bandwidth in bytes per second."""
    ranks = fabric.ranks // max(1, len(fabric.nodes))
    return [
        (node.host, node.within[-1], bus_bandwidth(node.within[-1], ranks))
        for node in fabric.nodes
        if node.within
    ]


def slow_pairs(fabric: Fabric) -> list[SlowPair]:
    """Pairs below SLOW of the median of their round, if it has LEAST_PAIRS: the slowest of all first."""
    found = []
    for index, (pairs, rates) in enumerate(zip(rounds(len(fabric.nodes)), fabric.rounds)):
        if min(len(pairs), len(rates)) < LEAST_PAIRS:
            continue
        typical = median(rates)
        for (first, second), rate in zip(pairs, rates):
            if rate < SLOW * typical:
                hosts = fabric.nodes[first].host, fabric.nodes[second].host
                found.append(SlowPair(index, hosts, rate, typical))
    return sorted(found, key=lambda pair: pair.bytes_per_second / pair.median)


def slow_hosts(fabric: Fabric, pairs: Sequence[SlowPair]) -> list[SlowHost]:
    """Hosts whose pairs are slow in more than half of their rounds, and in two at least: of a single slow
    pair nobody knows which end it is. `pairs`: the slow ones. The worst hosts come first."""
    of, slow = Counter[str](), Counter[str]()
    for each, rates in zip(rounds(len(fabric.nodes)), fabric.rounds):
        if min(len(each), len(rates)) >= LEAST_PAIRS:
            of.update(fabric.nodes[host].host for pair in each for host in pair)
    for pair in pairs:
        slow.update(pair.hosts)
    return [
        SlowHost(host, number, of[host], next(pair for pair in pairs if host in pair.hosts))
        for host, number in slow.most_common()
        if number > max(1, of[host] / 2)
    ]


def past_rdma(fabric: Fabric) -> int:
    """Number of hosts that have an active RDMA port, if sockets were used instead of it; otherwise 0."""
    sockets = any(name.startswith(SOCKETS) for name in fabric.transports)
    return sum(node.rdma_ports > 0 for node in fabric.nodes) if sockets and len(fabric.nodes) > 1 else 0
