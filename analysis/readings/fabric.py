"""What lies between the devices of a run, in words and for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiperf.journal.replay import Replay
from aiperf.proposing.plan import FABRIC_SECONDS, fabric_seconds
from aiperf.score.fabric import (
    COUPLED_SINCE,
    MEASURED_SINCE,
    bus_bandwidth,
    coupled_per_second,
    coupled_share,
    fabric_of,
    is_known,
    largest_sum,
    past_rdma,
    share_by_links,
    slow_hosts,
    slow_pairs,
    within_hosts,
)
from aiperf.tasks.registry import task_of
from aiperf.wire.reports import Fabric, TimedAllReduce
from aiperf.wording import bytes_text, counted, figure, plain, scaled
from analysis.readings.robust import median
from nas.frozen import frozen
from nas.record import encode

SHOWN = 5
"""Most hosts and pairs that are named."""


def fabric_text(replay: Replay) -> list[str]:
    """A line for each part; none for a run that was not measured, and in older journals."""
    if replay.opened.rules < MEASURED_SINCE or not replay.legs:
        return []
    num_ranks, fabric = len(replay.leg.began.ranks), fabric_of(replay)
    if num_ranks < 2:
        return ["one device, so nothing lies between devices"]
    if fabric is None:
        short = not fabric_seconds(replay.opened.config.limits, num_ranks)
        why = f"a tenth of the run is less than the {FABRIC_SECONDS[0]:.0f} s that it takes" if short else ""
        return [f"unknown ({why or 'not measured'})"]
    return [*_unfinished(fabric), *_figures(fabric), *_transports(fabric), *_slow(fabric)]


def fabric_record(replay: Replay) -> dict[str, Any]:
    """What was measured and what follows from it, under the key `fabric`; nothing if it was not measured."""
    fabric = fabric_of(replay)
    if fabric is None:
        return {}
    pairs, found = slow_pairs(fabric), largest(fabric)
    return {
        "fabric": {
            **encode(fabric),
            "known": is_known(fabric),
            "bus_bytes_per_second": found.bytes_per_second if found else None,
            "slow_pairs": encode(pairs),
            "slow_hosts": encode(slow_hosts(fabric, pairs)),
            **({} if fabric.coupled is None else {"coupled_share": coupled_share(fabric)}),
        }
    }


@frozen
class CoupledReading:
    """How fast the devices of a run train together."""

    share: float | None
    """Share of the rate that they have each by itself; None if it is not known."""
    aside: str
    """What it rests on, or why it is unknown."""


def coupled_reading(replay: Replay) -> CoupledReading | None:
    """None for a run that did not measure its fabric, and in a journal of rules that did not know it."""
    fabric, task = fabric_of(replay), task_of(replay.opened.config.data)
    if replay.opened.rules < COUPLED_SINCE or fabric is None:
        return None
    share, rate, coupled = coupled_share(fabric), coupled_per_second(fabric), fabric.coupled
    if coupled is None or share is None or rate is None:
        return CoupledReading(None, coupled.reason if coupled and coupled.reason else "as the fabric")
    together, alone = (
        figure(task.amount.rate(each, coupled.size)) for each in (rate, coupled.uncoupled_per_second)
    )
    network = task.control.named(coupled.network)
    links = share_by_links(fabric, network)
    by_links = f"; the bus bandwidth alone would leave {links:.2f}" if links is not None else ""
    return CoupledReading(
        share,
        f"{together} of {alone} {task.amount.name}/s; {network.name} at {network.at([coupled.size])}, "
        f"batch {coupled.batch_size} on each of {counted(fabric.ranks, 'rank')}{by_links}",
    )


@frozen
class Largest:
    """The largest all-reduce of a run, over all ranks."""

    bytes: int
    ranks: int
    bytes_per_second: float
    """Its bus bandwidth."""

    @property
    def text(self) -> str:
        size, ranks = bytes_text(self.bytes), counted(self.ranks, "rank")
        return f"{bandwidth_text(self.bytes_per_second)} at {size}, {ranks}"


def largest(fabric: Fabric) -> Largest | None:
    """That over all ranks, or of the only host; None if none was measured."""
    measured = largest_sum(fabric)
    if measured is None:
        return None
    return Largest(measured.bytes, fabric.ranks, bus_bandwidth(measured, fabric.ranks))


def bandwidth_text(bytes_per_second: float) -> str:
    return scaled(bytes_per_second, "B/s", 3)


def transports_text(fabric: Fabric) -> str:
    """ "P2P (48), NET/IB (16)", the most frequent first; empty if the library reports nothing."""
    used = sorted(fabric.transports.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{plain(name)} ({number:,})" for name, number in used)


def _unfinished(fabric: Fabric) -> list[str]:
    """Why the measurement did not end, by the hosts for which the others waited."""
    reasons = [f"{node.host}: {node.reason}" for node in fabric.nodes if node.reason]
    if fabric.missing:
        reasons.append(
            f"{counted(len(fabric.missing), 'rank')} reported nothing, rank {fabric.missing[0]} first"
        )
    more = [f"and {len(reasons) - SHOWN:,} more"] if len(reasons) > SHOWN else []
    return [f"unknown ({'; '.join([*reasons[:SHOWN], *more])})"] if reasons else []


def _figures(fabric: Fabric) -> list[str]:
    """All-reduces over all ranks and within hosts, and the pairs of the first round, which cross the
    bisection."""
    lines = []
    if fabric.over_all:
        lines.append(_all_reduce(f"over {fabric.ranks:,} ranks", fabric.over_all, fabric.ranks))
    if found := within_hosts(fabric):
        least = min(found, key=lambda each: each[2])
        ranks = fabric.ranks // len(fabric.nodes)
        own = next(node.within for node in fabric.nodes if node.host == least[0])
        where = (
            f"within {least[0]}, the slowest of {len(found):,} hosts" if len(found) > 1 else "within the host"
        )
        lines.append(_all_reduce(f"over {ranks} ranks {where}", own, ranks))
    if fabric.rounds and fabric.rounds[0]:
        rates, hosts = fabric.rounds[0], len(fabric.nodes)
        lines.append(
            f"{counted(len(rates), 'pair')} of hosts at half of the width, all at once: median "
            f"{bandwidth_text(median(rates))} in each direction, least {bandwidth_text(min(rates))}"
            if hosts > 2
            else f"the two hosts: {bandwidth_text(rates[0])} in each direction"
        )
    return lines


def _all_reduce(where: str, measured: Sequence[TimedAllReduce], ranks: int) -> str:
    first, last = measured[0], measured[-1]
    return (
        f"all-reduce {where}: {bandwidth_text(bus_bandwidth(last, ranks))} of bus bandwidth at "
        f"{bytes_text(last.bytes)}, {1000 * first.seconds:.3g} ms for {bytes_text(first.bytes)}"
    )


def _transports(fabric: Fabric) -> list[str]:
    """What carried the data, and a warning if it was not the RDMA that there is."""
    used = transports_text(fabric) or ("unknown transports" if fabric.whole else "")
    lines = [f"{fabric.backend} over {used}"] if used else []
    if hosts := past_rdma(fabric):
        lines.append(
            f"{counted(hosts, 'host')} of {len(fabric.nodes):,} {'has' if hosts == 1 else 'have'} an active "
            "RDMA port, and sockets were used"
        )
    return lines


def _slow(fabric: Fabric) -> list[str]:
    """Hosts that are slow in most rounds, then the other slow pairs."""
    pairs = slow_pairs(fabric)
    hosts = slow_hosts(fabric, pairs)
    named = {each.host for each in hosts}
    lines = [
        f"slow: {each.host} in {each.rounds} of {counted(each.of, 'round')}, "
        f"{bandwidth_text(each.slowest.bytes_per_second)} at the least, where the median was "
        f"{bandwidth_text(each.slowest.median)}"
        for each in hosts
    ]
    lines += [
        f"slow: {pair.hosts[0]} with {pair.hosts[1]} in round {pair.round + 1}, "
        f"{bandwidth_text(pair.bytes_per_second)}, where the median was {bandwidth_text(pair.median)}"
        for pair in pairs
        if not named.intersection(pair.hosts)
    ]
    more = len(lines) - SHOWN
    return [*lines[:SHOWN], f"and {more:,} more slow hosts and pairs"] if more > 0 else lines
