"""The fabric, measured by all ranks of a run as one world of torch.distributed, before the span.

No collective of the span includes ranks of several groups. So each rank's part is a process of its own
(`measure`), which is ended at a limit, whatever it waits for, and is gone before the rank binds its device.
It writes what it knows after each part of its work, so that of a link that hangs the two hosts are known.

All-reduces are timed as by nccl-tests (PERFORMANCE.md there). Whatever is timed starts small, and grows as
long as the next size fits into the time: the links may be of any speed.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter
from typing import Any

import torch
import torch.distributed as dist

from aiperf.config import Config
from aiperf.device import Device, bind_place
from aiperf.host import variables
from aiperf.host.child_process import die_with_parent, put
from aiperf.parallel.ddp import meet_across_hosts, meeting_store, stay_on_host
from aiperf.tasks.registry import task_of
from aiperf.wire.door import INTERFACES, keep_others_away
from aiperf.wire.fabric import rounds
from aiperf.wire.layout import Place
from aiperf.wire.messages import JoinFabric
from aiperf.wire.reports import CoupledPart, FabricPart, TimedAllReduce
from nas.bounded import system_text
from nas.record import decode, encode

SIZES = tuple((64 << 10) * 8**power for power in range(5))
"""Bytes that are summed: 64 KiB to 256 MiB."""
LEAST_BYTES, MOST_BYTES, GROWTH, LEAST_REPEATS = 64 << 10, 64 << 20, 4, 4
"""Bytes that a pair exchanges at once: the first size, the largest one, the factor between two, and the
number of exchanges that must fit into the time for a size to be tried."""
MOST_REPEATS = 20  # of one size, as nccl-tests do by default
USED = 0.7
"""Share of the time left that is planned for; the rest is for connections, whose time is not known before."""
PAIRS_SHARE, WITHIN_SHARE = 0.5, 0.15
"""Shares of the planned time; what is left at the end is for the all-reduces over all ranks."""
ROUND_SECONDS, SUM_SECONDS = 1.0, 2.0
"""Longest time in seconds for a round of pairs, and for all sizes of an all-reduce."""
NCCL_REPORT = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,P2P,SHM"}
"""Variables by which NCCL, and RCCL likewise, print how each connection is made ("… via NET/IB/0")."""
ELSEWHERE = "NCCL_DEBUG_FILE"
"""Variable with the name of a file that NCCL prints to instead."""
CONNECTION = re.compile(r" via (NET/[^/\n]+|[A-Z0-9]+)")
NETWORKS, RDMA = Path("/sys/class/net"), Path("/sys/class/infiniband")


def measure(file: str, kind: str, until: str, listening: str) -> None:
    """The part of one rank, in a process of its own. `file` is the descriptor of a file with the rank's
    place, `JoinFabric`, the rank's process, the configuration and the seconds for the coupled control, into
    which it then writes its `FabricPart`; `until` is the limit for the fabric in seconds of the monotonic
    clock of this host; `listening` is the descriptor of the first rank's
    socket, or -1."""
    die_with_parent()
    given = json.loads(os.pread(int(file), os.fstat(int(file)).st_size, 0))
    if os.getppid() != given["parent"]:  # which has ended while this process imported torch
        os._exit(1)
    where, join = decode(Place, given["place"]), decode(JoinFabric, given["join"])
    rank = _Rank(file, where, float(until))
    rank.does("the choice of the device")
    rank.device = bind_place(kind, where)
    rank.does(f"meeting at {join.host}:{join.port}", backend=rank.device.backend)
    rank.meet(join, int(listening))
    rank.measure()
    rank.couple(decode(Config, given["config"]), given["coupled_seconds"])
    os._exit(0)  # all is written, and to leave the world in order could hang


class _Rank:
    """One rank of the world of all ranks."""

    device: Device

    def __init__(self, file: str, place: Place, until: float) -> None:
        self._file, self._place, self._until, self._began = file, place, until, monotonic()
        self._local = place.ranks_on_host
        self._position = place.host_index * self._local + place.device_index
        self.part = FabricPart(place.rank, socket.gethostname(), place.host_index, done=-1)

    def does(self, what: str, **found: Any) -> None:
        """Writes what was found, and what this rank does next."""
        seconds = monotonic() - self._began
        self.part = replace(self.part, done=self.part.done + 1, reason=what, seconds=seconds, **found)
        put(self._file, encode(self.part))

    def meet(self, join: JoinFabric, listening: int) -> None:
        """Joins the world. Raises what torch.distributed raises."""
        everyone = tuple(range(self._place.num_ranks))
        spans = self._place.num_hosts > 1
        seat = replace(self._place, rank=self._position, group=everyone, spans_hosts=spans)
        stay_on_host(seat)
        if spans:
            meet_across_hosts(join.host, join.port, seat.leads)
        ask_for_report(os.environ)
        left = timedelta(seconds=max(1.0, self._until - monotonic()))
        store = meeting_store(seat, (join.host, join.port), join.secret, left, listening)
        self.does("connecting to all other ranks")
        dist.init_process_group(
            self.device.backend, store=store, rank=self._position, world_size=len(everyone), timeout=left
        )
        self.slowest(0.0)  # the first collective makes the connections
        if seat.leads and self.device.backend == "gloo":  # the others were not tried
            with socket.socket(fileno=os.dup(listening)) as door:
                keep_others_away(door)

    def measure(self) -> None:
        """Measures within the host, then pairs, then over all: a link that hangs stops everything after it,
        and only a pair names it."""
        place = self._place
        hosts: list[Any] = [None] * place.num_ranks
        dist.all_gather_object(hosts, self.part.host)
        pairs = rounds(place.num_hosts)
        planned = USED * self.left()
        if self._local > 1:
            self.does("the all-reduce within the host")
            first = self._position - place.device_index
            ours = dist.new_group(list(range(first, first + self._local)), use_local_synchronization=True)
            self.slowest(0.0, ours)  # makes the connections
            seconds = planned * (WITHIN_SHARE if pairs else 1.0)
            self.part = replace(self.part, within=tuple(self._all_reduces(ours, seconds)))
        for index, each in enumerate(pairs):
            peer = next((sum(pair) - place.host_index for pair in each if place.host_index in pair), None)
            name = "no host" if peer is None else hosts[peer * self._local]
            self.does(f"round {index + 1} of {len(pairs)} of the pairs, with {name}")
            seconds = min(ROUND_SECONDS, PAIRS_SHARE * planned / len(pairs))
            rate = 0.0 if peer is None else self._exchange(peer, seconds)
            self.part = replace(self.part, pairs=(*self.part.pairs, rate))
            self.does(f"waiting for the others in round {index + 1} of the pairs")
            self.slowest(0.0)
        if pairs:
            self.does("the all-reduce over all ranks")
            over_all = tuple(self._all_reduces(dist.group.WORLD, USED * self.left()))
            self.part = replace(self.part, over_all=over_all)
        self.slowest(0.0)  # so that none leaves while another still needs it
        coupled = CoupledPart(reason="what follows the fabric")  # without a reason it would be done
        self.does("", transports=self._transports(), rdma_ports=rdma_ports(), coupled=coupled)

    def couple(self, config: Config, seconds: float) -> None:
        """Times the coupled control. What was measured before it does not depend on it."""
        self._until = monotonic() + seconds
        self.couples("reading its libraries")
        from aiperf.measuring.coupled import measure_coupled  # here, as it takes seconds to import

        measure_coupled(task_of(config.data).control, self.device, config.training.format, self)

    def couples(self, what: str, **found: Any) -> None:
        before = self.part.coupled or CoupledPart()
        coupled = replace(before, done=before.done + 1, reason=what, **found)
        self.part = replace(self.part, coupled=coupled)
        put(self._file, encode(self.part))

    def left(self) -> float:
        """Seconds until the limit, by the clock of the first rank, so that all decide alike."""
        left = torch.tensor([self._until - monotonic()], device=self.device.torch)
        dist.broadcast(left, 0)
        return left.item()

    def slowest(self, seconds: float, group: Any = None) -> float:
        """The longest of the times of the ranks of a group; all ranks of it have come here by then."""
        value = torch.tensor([seconds], device=self.device.torch)
        dist.all_reduce(value, dist.ReduceOp.MAX, group=group)
        return value.item()

    def _all_reduces(self, group: Any, seconds: float) -> Iterator[TimedAllReduce]:
        """The sizes that fit into `seconds`, each after one all-reduce to warm up."""
        seconds, spent = min(SUM_SECONDS, seconds), 0.0
        for size in SIZES:
            values = torch.ones(size // 4, device=self.device.torch)
            each = self.slowest(self._timed(partial(dist.all_reduce, values, group=group)), group)
            repeats = max(1, min(MOST_REPEATS, int(seconds / len(SIZES) / max(each, 1e-9))))
            began = perf_counter()
            for _ in range(repeats):
                dist.all_reduce(values, group=group)
            self.device.synchronise()
            took = self.slowest(perf_counter() - began, group)
            yield TimedAllReduce(size, took / repeats)
            spent += each + took
            if spent + 2 * 8 * took / repeats > seconds:  # the next size, once to warm up and once timed
                return

    def _timed(self, work: Callable[[], object]) -> float:
        self.device.synchronise()
        began = perf_counter()
        work()
        self.device.synchronise()
        return perf_counter() - began

    def _exchange(self, node: int, seconds: float) -> float:
        """Bytes per second that this rank exchanges in each direction with its counterpart on another host:
        the median of several exchanges, as other programs may interrupt one, of the largest size of which
        several fit into `seconds`. The slower of the two ends counts, so both decide alike."""
        peer, where = node * self._local + self._place.device_index, self.device.torch
        size, rates, spent = LEAST_BYTES, list[float](), 0.0
        theirs = torch.zeros(1, device=where)
        self._swap(torch.zeros(1, device=where), theirs, peer)  # makes the connection
        while True:
            out, into = torch.ones(size // 4, device=where), torch.empty(size // 4, device=where)
            took = self._timed(partial(self._swap, out, into, peer))
            self._swap(torch.tensor([took], device=where), theirs, peer)
            each = max(torch.tensor(took).item(), theirs.item(), 1e-9)  # in fp32 at both ends
            spent += each
            rates.append(size / each)
            if size < MOST_BYTES and spent + LEAST_REPEATS * GROWTH * each <= seconds:
                size, rates = GROWTH * size, []
            elif spent + each > seconds:
                return median(rates)

    def _swap(self, out: torch.Tensor, into: torch.Tensor, peer: int) -> None:
        """Sends and receives at the same time. The receipt comes first: Gloo says that it is ready for it on
        the connection that it sends by, so behind the data the other end would begin only after this one."""
        both = [dist.P2POp(dist.irecv, into, peer), dist.P2POp(dist.isend, out, peer)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    def _transports(self) -> dict[str, int]:
        """The transports that were used, with the number of connections."""
        if self.device.backend == "gloo":
            return {gloo_transport(os.environ): 1}
        ctypes.CDLL(None).fflush(None)  # NCCL writes to a standard output that is a file, which has a buffer
        return nccl_transports(os.pread(1, os.fstat(1).st_size, 0).decode(errors="replace"))


def ask_for_report(environment: MutableMapping[str, str]) -> None:
    """Makes NCCL print NCCL_REPORT where this process reads it."""
    if variables.raw(environment, ELSEWHERE) is not None:
        del environment[ELSEWHERE]
    environment.update(NCCL_REPORT)


def nccl_transports(report: str) -> dict[str, int]:
    """Number of connections by transport in what NCCL printed: P2P, SHM, NET/IB, NET/Socket and others."""
    return dict(sorted(Counter(CONNECTION.findall(report)).items()))


def gloo_transport(environment: Mapping[str, str]) -> str:
    """The interface that Gloo used, with its speed if the driver reports it."""
    name = variables.word(environment, INTERFACES[0]).split(",")[0].removeprefix("=")
    speed = system_text(NETWORKS / name / "speed").strip() if name else ""
    known = f" at {speed} Mbit/s" if speed.isdigit() and int(speed) else ""
    return f"sockets on {name or 'an unknown interface'}{known}"


def rdma_ports() -> int:
    """Number of active RDMA ports of this host, of InfiniBand and of RoCE: the state is "4: ACTIVE"."""
    return sum("ACTIVE" in system_text(state) for state in RDMA.glob("*/ports/*/state"))
