"""Which ranks train together, and on which devices: a function of where the launcher put them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aiperf.config import LEAST_BATCH
from aiperf.errors import ConfigError, WorldError
from aiperf.wire.messages import FromGroup, ToGroup


@dataclass(frozen=True)
class Hello(FromGroup):
    """The first word of a rank: where it is."""

    host: str


@dataclass(frozen=True)
class Place(ToGroup):
    """The answer: what a rank is in this run."""

    rank: int
    """Of the world; 0 is the master."""
    group: tuple[int, ...]
    """The ranks that train one trial together, this one among them; the first leads."""
    device_index: int
    """Position among the workers of the host."""
    ranks_on_host: int
    """Those that train."""
    spans_hosts: bool = False
    """Whether the group does."""

    @property
    def position(self) -> int:
        """In the group."""
        return self.group.index(self.rank)

    @property
    def leads(self) -> bool:
        return self.position == 0


@dataclass(frozen=True)
class MasterBeat(ToGroup):
    """The master is alive."""


@dataclass(frozen=True)
class ToAll(ToGroup):
    """What goes to all groups, from rank to rank."""

    avoid: tuple[int, ...]
    """Ranks that are dead, or of groups that are lost: they give nothing on. In rising order."""
    incarnations: Mapping[str, int]
    """Of the groups that were started again before it was said, by leader: the others are in their first. One
    that was started again later does not hear it."""
    message: ToGroup


@dataclass(frozen=True)
class Disband(ToGroup):
    """Another rank of the group is dead: stop what is running, and wait for the end of the run."""


@dataclass(frozen=True)
class Describe(ToGroup):
    """What device would you have? Asked of every rank before a rehearsal."""


@dataclass(frozen=True)
class Described(FromGroup):
    """The device of a rank, or why it has none."""

    rank: int
    device: str
    kind: str = ""
    memory_bytes: int = 0
    formats: Mapping[str, float] = field(default_factory=dict)
    """Operations a second of a small product in each format that it has."""
    sensors: str = ""
    """The library that tells its power."""


@dataclass(frozen=True)
class Lost(FromGroup):
    """The process that trained for this rank is no more."""

    reason: str


@dataclass(frozen=True)
class Bye(FromGroup):
    """The last word of a rank."""


def layout(hosts: Sequence[str], devices_per_trial: int = 0) -> tuple[Place, ...]:
    """The places of the ranks 1 and up; `hosts` names the host of every rank, that of the master too.

    A group is all ranks of a host, or `devices_per_trial` of them; only a number larger than a host
    asks for groups that span hosts. Raises WorldError, with the command that would be right.
    """
    on_host: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts[1:], start=1):
        on_host.setdefault(host, []).append(rank)
    workers = _equal(on_host, hosts)
    size = devices_per_trial or workers
    spans = size > workers
    if (size % workers or len(on_host) % (size // workers)) if spans else workers % size:
        raise WorldError(
            f"--devices-per-trial {size} does not divide {len(on_host)} host(s) of {workers} worker(s) "
            f"evenly; use one of {', '.join(map(str, _sizes(workers, len(on_host))))}"
        )
    ordered = [rank for ranks in on_host.values() for rank in ranks]
    groups = [tuple(ordered[first : first + size]) for first in range(0, len(ordered), size)]
    places = [
        Place(rank, group, on_host[hosts[rank]].index(rank), workers, spans)
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
    """How many workers every host has."""
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


def _host_list(first: str, counts: dict[str, int], most: int) -> str:
    """Of Open MPI: host:slots; the master takes one slot more on the first host."""
    ordered = [first, *(host for host in counts if host != first)]
    return ",".join(f"{host}:{most + (host == first)}" for host in ordered)


def _sizes(workers: int, num_hosts: int) -> list[int]:
    within = [size for size in range(1, workers + 1) if workers % size == 0]
    return within + [workers * hosts for hosts in range(2, num_hosts + 1) if num_hosts % hosts == 0]
