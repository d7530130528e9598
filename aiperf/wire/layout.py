"""The layout of a run: which ranks train together and on which devices, computed from the hosts on which the
launcher placed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from aiperf.config import LEAST_BATCH
from aiperf.errors import ConfigError, WorldError
from aiperf.wire.messages import ToGroup
from aiperf.wire.reports import FromGroup
from aiperf.wording import counted
from nas.frozen import frozen


@frozen
class Hello(FromGroup):
    """The first message of a rank, with the host that it runs on."""

    host: str


@frozen
class Place(ToGroup):
    """The answer to `Hello`: the role of a rank in this run."""

    rank: int
    """Rank in the world; 0 is the master."""
    group: tuple[int, ...]
    """The ranks that train one trial together, this one among them; the first one leads."""
    device_index: int
    """Position among the workers of the host, which is the index of the device to bind."""
    ranks_on_host: int
    """Number of ranks on the host that train, by which the host's cores are shared."""
    spans_hosts: bool = False
    """Whether the group spans several hosts."""
    host_index: int = 0
    """Position of the host among those with workers, in the order of their first ranks."""
    num_hosts: int = 1
    """Number of hosts with workers; each has `ranks_on_host`."""

    @property
    def num_ranks(self) -> int:
        """Number of ranks of the run that train."""
        return self.num_hosts * self.ranks_on_host

    @property
    def position(self) -> int:
        """Position in the group; 0 leads it."""
        return self.group.index(self.rank)

    @property
    def leads(self) -> bool:
        return self.position == 0


@frozen
class MasterBeat(ToGroup):
    """A heartbeat: the master is alive."""


@frozen
class ToAll(ToGroup):
    """A message for all groups, forwarded from rank to rank (`aiperf.ranks.tree`)."""

    avoid: tuple[int, ...]
    """Ranks that forward nothing, because they are dead or their group is lost, in rising order."""
    dead: tuple[int, ...]
    """Those of them that are dead, in rising order. Nothing is sent to them: Open MPI 5.0.11 kills a rank
    whose first message to a rank on another host is to a dead one ("Send error after request freed")."""
    incarnations: Mapping[str, int]
    """Incarnation of each group that was restarted before the message was sent, by leader; all other groups
    are in their first. A group that was restarted since then ignores the message."""
    message: ToGroup


@frozen
class Disband(ToGroup):
    """Another rank of the group is dead: stop the running work, and wait for the end of the run."""


@frozen
class Describe(ToGroup):
    """Request to describe the device that the rank would bind; sent before a rehearsal, and to choose the
    number format of a run."""


@frozen
class Described(FromGroup):
    """The device that a rank would bind, or the reason why it has none."""

    rank: int
    device: str
    """Name of the device; the reason if there is none."""
    kind: str = ""
    """Kind of the device as torch names it; empty if there is none."""
    memory_bytes: int = 0
    formats: Mapping[str, float] = field(default_factory=dict)
    """Operations per second of a matrix product in each format of the device, as `Ready.formats`."""
    sensors: str = ""
    """Module of `aiperf.telemetry` that reads its power; empty if there is none."""
    note: str = ""
    """What the user should know about the choice of the device."""


@frozen
class Lost(FromGroup):
    """The worker process of this rank has ended."""

    reason: str


@frozen
class Bye(FromGroup):
    """The last message of a rank."""


def layout(hosts: Sequence[str], devices_per_trial: int = 0, spread: bool = False) -> tuple[Place, ...]:
    """The places of the ranks from 1 on; `hosts` names the host of every rank, the master's included.

    A group is all ranks of a host, or `devices_per_trial` of them; only a number larger than a host has makes
    groups that span hosts. With `spread` every group spans as many hosts as it can (`_spread_groups`). Raises
    WorldError, which names the command that would be right.
    """
    on_host: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts[1:], start=1):
        on_host.setdefault(host, []).append(rank)
    workers = _equal(on_host, hosts)
    size = devices_per_trial or workers
    spans = spread or size > workers
    if spread:
        groups = _spread_groups(list(on_host.values()), size)
    elif (size % workers or len(on_host) % (size // workers)) if spans else workers % size:
        there = f"{counted(len(on_host), 'host')} of {counted(workers, 'worker')}"
        sizes = ", ".join(map(str, _sizes(workers, len(on_host))))
        raise WorldError(f"--devices-per-trial {size} does not divide {there} evenly; use one of {sizes}")
    else:
        ordered = [rank for ranks in on_host.values() for rank in ranks]
        groups = [tuple(ordered[first : first + size]) for first in range(0, len(ordered), size)]
    order = {host: index for index, host in enumerate(on_host)}
    places = [
        Place(
            rank,
            group,
            on_host[hosts[rank]].index(rank),
            workers,
            spans,
            order[hosts[rank]],
            len(on_host),
        )
        for group in groups
        for rank in group
    ]
    return tuple(sorted(places, key=lambda place: place.rank))


def refuse_uneven_batch(batch_size: int, ranks: int) -> None:
    """Raises ConfigError for a batch that the ranks of a group cannot share evenly."""
    if batch_size % ranks or batch_size < LEAST_BATCH * ranks:
        near = max(LEAST_BATCH, batch_size // ranks) * ranks
        raise ConfigError(
            f"training.batch_size is {batch_size}, which the {ranks} ranks of a group cannot share evenly; "
            f"use --set training.batch_size={near} (or {near + ranks}), or other --devices-per-trial"
        )


def _equal(on_host: dict[str, list[int]], hosts: Sequence[str]) -> int:
    """Number of workers of each host. Raises WorldError if the hosts differ, since all groups have one
    size."""
    counts = {host: len(ranks) for host, ranks in on_host.items()}
    if not counts:
        raise WorldError("the only rank is the master, so none trains; start at least two ranks")
    most = max(counts.values())
    if min(counts.values()) != most:
        told = ", ".join(f"{host} {count}" for host, count in counts.items())
        ranks = len(counts) * most + 1
        raise WorldError(
            f"the hosts have different numbers of workers ({told}): beside the master every host needs the "
            f"same; start {ranks} ranks ({len(counts)} x {most} + 1), the extra one on {hosts[0]}, as with "
            f"mpiexec -n {ranks} -host {_host_list(hosts[0], counts, most)}"
        )
    return most


def _spread_groups(on_host: Sequence[Sequence[int]], size: int) -> list[tuple[int, ...]]:
    """Groups of this size over as many hosts as possible, equally many ranks of each on every host of its
    own, and these hosts as far from each other as the order of the hosts allows: of four, the first with the
    third. Ranks of one group have the same positions on their hosts, so that devices which a rail of the
    network joins train together.

    The groups on the same hosts are led from another host each, because a leader also writes the weights.
    Raises WorldError, with the sizes that are possible.
    """
    hosts, workers = len(on_host), len(on_host[0])
    if hosts == 1:
        raise WorldError("--spread lays groups over several hosts, and all workers are on one; omit it")
    shared = _hosts_of_a_group(workers, hosts, size)
    if not shared:
        sizes = sorted({n * own for n in _divisors(hosts)[1:] for own in _divisors(workers)})
        raise WorldError(
            f"--spread: groups of {size} do not lie evenly over {hosts} hosts of {counted(workers, 'worker')}"
            f"; use --devices-per-trial with one of {', '.join(map(str, sizes))}"
        )
    own, distance = size // shared, hosts // shared
    return [
        tuple(
            rank
            for turn in range(shared)
            for rank in on_host[first + (turn + index) % shared * distance][index * own : (index + 1) * own]
        )
        for first in range(distance)
        for index in range(workers // own)
    ]


def _hosts_of_a_group(workers: int, hosts: int, size: int) -> int:
    """The largest number of hosts, two at least, over which groups of a size lie evenly; 0 if there is
    none."""
    numbers = (
        n for n in range(min(hosts, size), 1, -1) if not (hosts % n or size % n or workers % (size // n))
    )
    return next(numbers, 0)


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def _host_list(first: str, counts: dict[str, int], most: int) -> str:
    """Argument of Open MPI's -host, as "host:slots,…"; the master takes one more slot on the first host."""
    ordered = [first, *(host for host in counts if host != first)]
    return ",".join(f"{host}:{most + (host == first)}" for host in ordered)


def _sizes(workers: int, num_hosts: int) -> list[int]:
    within = [size for size in range(1, workers + 1) if workers % size == 0]
    return within + [workers * hosts for hosts in range(2, num_hosts + 1) if num_hosts % hosts == 0]
