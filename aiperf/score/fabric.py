"""What the measured fabric says: the bus bandwidth of all-reduces, which pairs and hosts are slow, and how
fast devices train together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np

from aiperf.journal.replay import Replay
from aiperf.tasks.task import ControlNetwork
from aiperf.wire.fabric import rounds
from aiperf.wire.reports import Fabric, TimedAllReduce
from nas.frozen import frozen
from nas.layers.layer import WIDE

MEASURED_SINCE = 2
"""Version of the rules since which runs measure the fabric."""
COUPLED_SINCE = 3
"""Version of the rules since which runs time the coupled control."""
FORWARD = 1 / 3
"""Part of a training step before its first gradient: the forward pass has a third of the operations."""
LEAST_TELLING = 4 << 20
"""Least bytes of an all-reduce by which that of gradients is judged: a smaller one may only wait."""
SLOW = 0.5
"""Share of the median of its round below which a pair is slow."""
LEAST_PAIRS = 4
"""Fewest pairs of a round among which a slow one is named: of three, one is far from the median by chance."""
SOCKETS = ("NET/Socket", "sockets on ")
"""How the transports begin that are no RDMA, of NCCL and of Gloo."""


@frozen
class SlowPair:
    """A pair of hosts that exchanged data slowly."""

    round: int
    """Index of the round."""
    hosts: tuple[str, str]
    bytes_per_second: float
    median: float
    """That of the round, in bytes per second."""


@frozen
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


def largest_sum(fabric: Fabric) -> TimedAllReduce | None:
    """The largest all-reduce over all ranks, or of the only host; None if none was measured."""
    measured = fabric.over_all or (fabric.nodes[0].within if len(fabric.nodes) == 1 else ())
    return measured[-1] if measured else None


def coupled_per_second(fabric: Fabric) -> float | None:
    """Training examples per second of the coupled control, all ranks together; None if it is not known."""
    coupled = fabric.coupled
    if coupled is None or coupled.reason or not fabric.whole:
        return None
    return fabric.ranks * coupled.batch_size * coupled.steps / coupled.seconds


def coupled_share(fabric: Fabric) -> float | None:
    """That rate over the sum of the rates that each rank has by itself; None if it is not known."""
    rate, coupled = coupled_per_second(fabric), fabric.coupled
    return None if rate is None or coupled is None else rate / coupled.uncoupled_per_second


def reduce_seconds(fabric: Fabric, gradient_bytes: int) -> float | None:
    """Time in seconds for the sum of the gradients over all ranks at the bus bandwidth of the largest
    all-reduce; None if that is not known."""
    measured = largest_sum(fabric)
    rate = bus_bandwidth(measured, fabric.ranks) if measured else 0.0
    return 2 * (fabric.ranks - 1) / fabric.ranks * gradient_bytes / rate if rate > 0 else None


def expected_share(step_seconds: float, sum_seconds: float, rest_seconds: float = 0.0) -> float:
    """The coupled share of a step of a device by itself, if the sum of the gradients takes `sum_seconds`: it
    begins after the forward pass, and goes on during the backward pass. `rest_seconds` is what a coupled step
    takes in addition, whatever the links are. docs/machine.md derives it."""
    return step_seconds / max(step_seconds, FORWARD * step_seconds + sum_seconds + rest_seconds)


@cache
def gradient_bytes(network: ControlNetwork) -> int:
    """Bytes of the gradients of the control, which are in fp32. They do not depend on the examples' size."""
    return WIDE * network.graph(network.sizes[-1]).num_parameters


def share_by_links(fabric: Fabric, network: ControlNetwork) -> float | None:
    """`expected_share` of the control by the largest all-reduce; None if that is too small to tell, or the
    coupled control is not known."""
    coupled, largest = fabric.coupled, largest_sum(fabric)
    seconds = reduce_seconds(fabric, gradient_bytes(network))
    if coupled is None or coupled_share(fabric) is None or largest is None or seconds is None:
        return None
    if largest.bytes < LEAST_TELLING:
        return None
    return expected_share(fabric.ranks * coupled.batch_size / coupled.uncoupled_per_second, seconds)


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
        typical = float(np.median(rates))
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
