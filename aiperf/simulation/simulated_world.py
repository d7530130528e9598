"""The master's interface to simulated groups: the real master, as one server with a queue on a virtual clock.

The groups are processes of SimPy; the master is not. Its code runs between two calls of `receive`, during
which the simulation stands still, and the time that this work would take is added to the master's own clock.
So that clock may be ahead of the simulation's: messages that the groups send meanwhile wait in the inbox.
"""

from __future__ import annotations

import heapq
import itertools
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

from aiperf.pretending.assumptions import Assumptions, Messages
from aiperf.pretending.group_model import GroupExtent, Pretended, device_speed
from aiperf.pretending.rank_report import pretended_manifest
from aiperf.ranks.world import Gone
from aiperf.simulation.data_on_nodes import DataOnNodes
from aiperf.simulation.simulated_group import SimulatedGroup, Surroundings
from aiperf.simulation.simulated_machine import (
    SharedStorage,
    SimulatedMachine,
    node_speed,
    seconds_to_failure,
)
from aiperf.wire.clocks import SAME_CLOCK, ClockReading
from aiperf.wire.layout import Place
from aiperf.wire.messages import Quit, Release, Setup, ToGroup, pack, unpack
from aiperf.wire.reports import FromGroup
from nas.graph import Graph
from nas.record import graph_from_json

START_WALL_SECONDS = 946_684_800.0
"""Unix time at which every simulation begins, 2000-01-01 UTC. It is always the same, so that equal
simulations have equal journals."""
SAMPLED = 8
"""One in this many messages is timed on this machine: to read its clock takes a twentieth of the time of a
message."""


@dataclass
class MasterTime:
    """What the master did from the release to the deadline, and how long messages waited for it. A request is
    a message that it took from its queue."""

    requests: int = 0
    busy_seconds: float = 0.0
    waited: array[float] = field(default_factory=lambda: array("d"))
    """Seconds that each message waited, from its arrival until the master took it."""
    hearing_seconds: float = 0.0
    """CPU time on this machine for the turns of the master that were timed and proposed nothing."""
    heard: int = 0
    """Messages in those turns."""
    proposing_seconds: float = 0.0
    """CPU time on this machine for the timed turns that proposed, also before the release."""
    proposing_heard: int = 0
    proposed: int = 0
    """Candidates that were proposed in those turns."""


class MasterClock:
    """The clock of the simulated master's host: it advances while the master waits and while it works. A turn
    of the master is from one message to the next.

    Its work takes the time that is assumed for each message and each new candidate or, with `measures`, the
    CPU time that it really takes on this machine. That time is measured in both cases, for the figures.
    """

    def __init__(self, assumed: Messages, measures: bool) -> None:
        """`assumed` are the times of the master's work; with `measures` it takes as long as it really takes
        here."""
        self.total = MasterTime()
        self.now = 0.0
        """Time in seconds when the turn began, plus the assumed time of its work so far."""
        self._assumed, self._measures = assumed, measures
        self._span: tuple[float, float] | None = None
        self._timed, self._heard, self._proposed, self._messages = measures, 0, 0, 0
        self._mark = time.process_time()

    def monotonic(self) -> float:
        """The master's time in seconds. Within a turn it advances only if the master's work is measured."""
        return self.now + (time.process_time() - self._mark if self._measures else 0.0)

    def wall(self) -> float:
        """Unix time in seconds."""
        return START_WALL_SECONDS + self.monotonic()

    def begin_span(self, seconds: float | None) -> None:
        """Starts the span, and with it the count of the master's time; a second call does nothing. `seconds`
        is its length, None without a limit."""
        if self._span is None:
            now = self.monotonic()
            self._span = (now, float("inf") if seconds is None else now + seconds)

    def end_turn(self) -> None:
        """The master is ready for the next message: its work is counted."""
        if not self._timed:
            return
        took = time.process_time() - self._mark
        if self._measures:
            self._work(took)
        if self._proposed:
            self.total.proposing_seconds += took
            self.total.proposed += self._proposed
            self.total.proposing_heard += self._heard
        elif self._in_span and (self._heard or self._measures):
            self.total.hearing_seconds += took
            self.total.heard += self._heard

    def hear(self, arrived: float) -> None:
        """Begins a turn with a message that arrived at `arrived`, which may be earlier than now."""
        self.now = max(self.now, arrived)
        if self._in_span:
            self.total.requests += 1
            self.total.waited.append(self.now - arrived)
        if not self._measures:
            self._work(self._assumed.master_seconds)
        self._messages += 1
        self._begin_turn(self._measures or self._messages % SAMPLED == 0, heard=1)

    def hear_nothing(self, until: float) -> None:
        """Begins a turn without a message: none has arrived until then."""
        self.now = until
        self._begin_turn(True, heard=0)  # always timed: the master proposes when no message is left

    def propose(self) -> None:
        """Counts a new candidate of the search."""
        self._proposed += 1
        if not self._measures:
            self._work(self._assumed.proposal_seconds)

    @property
    def _in_span(self) -> bool:
        """Whether this moment is between release and deadline; only that time is counted."""
        return self._span is not None and self._span[0] <= self.now <= self._span[1]

    def _work(self, seconds: float) -> None:
        """Lets the master work for these seconds."""
        if self._in_span:
            self.total.busy_seconds += seconds
        self.now += seconds

    def _begin_turn(self, timed: bool, heard: int) -> None:
        """Begins a turn, whose CPU time is measured if it is `timed`."""
        self._timed, self._heard, self._proposed = timed, heard, 0
        if timed:
            self._mark = time.process_time()


class SimulatedWorld:
    """The groups of one simulation. It is determined by the machine, the assumptions and the random seed,
    unless the master's time is measured."""

    def __init__(
        self,
        machine: SimulatedMachine,
        assumptions: Assumptions,
        random_seed: int,
        code_hash: str,
        measures_master: bool = False,
    ) -> None:
        """`measures_master`: the master's work takes the time that it takes on this machine, so that no two
        simulations are equal. Raises WorldError if the groups do not fit the nodes."""
        self.assumptions = assumptions
        self._env = simpy.Environment()
        self.storage = SharedStorage(self._env, assumptions.storage, machine.groups_a_node)
        self.data = DataOnNodes(assumptions.data)
        self.clock = MasterClock(assumptions.messages, measures_master)
        self._inbox: list[tuple[float, int, int, int, bytes | Gone]] = []
        """A heap of messages by arrival, then by group, then in the order of sending, with the group's
        incarnation."""
        self._arrivals = itertools.count()
        # The last message to groups in both forms, and the seed of the last Setup: a message to all is
        # packed, unpacked and built once, not for each of thousands of groups.
        self._packed: tuple[object, bytes] = (None, b"")
        self._unpacked: tuple[bytes, ToGroup | None] = (b"", None)
        self._seed: tuple[Setup | None, Graph | None] = (None, None)
        hosts, places = machine.hosts, machine.places
        around = Surroundings(
            self._env,
            assumptions,
            self.storage,
            self.data,
            self.group_of,
            self._say,
            hosts,
            code_hash,
            START_WALL_SECONDS,
        )
        of_rank = {place.rank: place for place in places}
        self.groups: tuple[tuple[int, ...], ...] = tuple(dict.fromkeys(place.group for place in places))
        spread = assumptions.spread
        speeds = {host: node_speed(random_seed, host, spread.node) for host in dict.fromkeys(hosts)}

        def speed_of(rank: int) -> float:
            device = f"{hosts[rank]}:{of_rank[rank].device_index}"
            return speeds[hosts[rank]] * device_speed(random_seed, device, spread.device)

        self._each = [
            SimulatedGroup(
                around,
                index,
                tuple(of_rank[rank] for rank in ranks),
                min(map(speed_of, ranks)),
            )
            for index, ranks in enumerate(self.groups)
        ]
        self._dead: set[int] = set()
        self._plan_failures(hosts, random_seed)

    def send(self, group: int, message: ToGroup) -> None:
        """Sends a message, which arrives after the assumed time, counted from the master's own clock."""
        if message is not self._packed[0]:
            self._packed = (message, pack(message))
        if isinstance(message, Release):
            self.clock.begin_span(message.seconds_left)
        delay = self._ahead + self.assumptions.messages.seconds
        self._after(delay, self._deliver, (group, self._each[group].incarnation, self._packed[1]))

    def send_all(self, message: ToGroup) -> None:
        """The same to all groups, one after the other."""
        for group in range(len(self.groups)):
            self.send(group, message)

    def receive(self, seconds: float) -> tuple[int, FromGroup | Gone] | None:
        """The next message with its group; None if none arrives within `seconds`. The simulation advances
        here, and nowhere else."""
        clock, env, inbox = self.clock, self._env, self._inbox
        clock.end_turn()
        # What happened while the master was at work.
        while env.peek() <= clock.now:
            env.step()
        until = clock.now + seconds
        while True:
            while not inbox and env.peek() <= until:
                env.step()
            if not inbox:
                clock.hear_nothing(until)
                return None
            while env.peek() <= inbox[0][0]:  # what else arrives at that moment: the lowest group is first
                env.step()
            # It may have arrived while the master was at work: then it has waited.
            arrived, group, _, incarnation, data = heapq.heappop(inbox)
            if incarnation == self._each[group].incarnation:
                clock.hear(arrived)
                return group, data if isinstance(data, Gone) else unpack(FromGroup, data)

    def clock_of(self, rank: int) -> ClockReading:
        """The offset of a rank's clock: all are the simulation's own."""
        return SAME_CLOCK

    def restart(self, group: int) -> bool:
        """Starts a lost group again; False if one of its nodes failed, which is for good."""
        if group in self._dead:
            return False
        self._each[group].start()
        self._plan_crash(group)
        return True

    def close(self) -> None:
        """Sends Quit to all groups."""
        self.send_all(Quit())

    @property
    def _ahead(self) -> float:
        """Seconds by which the master's clock is ahead of the simulation's; not below 0, also if an error
        ended its turn."""
        return max(0.0, self.clock.monotonic() - self._env.now)

    # Messages in flight

    def _after(self, seconds: float, then: Callable[[simpy.Event], None], value: object) -> None:
        """Calls a function with an event that has this value, after so many seconds."""
        event = self._env.timeout(seconds, value)
        assert event.callbacks is not None
        event.callbacks.append(then)

    def _say(self, group: int, message: FromGroup) -> None:
        """Sends a message of a group to the master's inbox. It carries the group's incarnation, so that
        `receive` can drop it if the group was started again meanwhile."""
        data = (group, self._each[group].incarnation, pack(message))
        self._after(self.assumptions.messages.seconds, self._arrive, data)

    def _arrive(self, event: simpy.Event) -> None:
        """Puts a message into the master's inbox."""
        group, incarnation, data = _content(event)
        arrival = (self._env.now, group, next(self._arrivals), incarnation, data)
        heapq.heappush(self._inbox, arrival)

    def _deliver(self, event: simpy.Event) -> None:
        """Hands a message to its group, unless the group has died or was started again since it was sent."""
        group, incarnation, data = _content(event)
        if group in self._dead or incarnation != self._each[group].incarnation:
            return
        if data is not self._unpacked[0]:
            self._unpacked = (data, unpack(ToGroup, data))
        message = self._unpacked[1]
        assert message is not None
        self._each[group].hear(message)

    def group_of(self, setup: Setup, places: Sequence[Place], speed: float) -> Pretended:
        """What a group of these ranks does once it is set up: it pretends to train, at this speed."""
        config, extent = setup.config, GroupExtent.of(places, self.assumptions.fabric)
        manifest = pretended_manifest(config)
        return Pretended(self.assumptions, config, self.seed_of(setup), manifest, len(places), speed, extent)

    def seed_of(self, setup: Setup) -> Graph:
        """The architecture of the seed, built once for all groups."""
        if setup is not self._seed[0] or self._seed[1] is None:
            self._seed = (setup, graph_from_json(setup.seed_graph))
        found = self._seed[1]
        assert found is not None
        return found

    # Failures

    def _plan_failures(self, hosts: tuple[str, ...], random_seed: int) -> None:
        """Plans the failure of each node, which takes all of its groups for good, and the first crash of each
        group, after which it can be started again."""
        failures = self.assumptions.failures
        on_host: dict[str, list[int]] = {}
        for index, ranks in enumerate(self.groups):
            for host in dict.fromkeys(hosts[rank] for rank in ranks):
                on_host.setdefault(host, []).append(index)
        for host, groups in on_host.items():
            seconds = seconds_to_failure(host, random_seed, failures.node_hours)
            if seconds < float("inf"):
                self._after(seconds, self._fail_node, (host, groups))
        self._random_seed = random_seed
        for index in range(len(self.groups)):
            self._plan_crash(index)

    def _fail_node(self, event: simpy.Event) -> None:
        """Ends all groups that have a device on the node."""
        host, groups = _content(event)
        for group in groups:
            if group not in self._dead:
                self._dead.add(group)
                self._break(group, f"{host} failed")

    def _plan_crash(self, group: int) -> None:
        """Plans the first crash of one of the group's processes: with n processes it comes n times as
        early."""
        ranks, each = self.groups[group], self._each[group]
        what = f"group {group}, start {each.incarnation}"
        hours = self.assumptions.failures.process_hours / len(ranks)
        seconds = seconds_to_failure(what, self._random_seed, hours)
        if seconds < float("inf"):
            self._after(self._ahead + seconds, self._crash, (group, each.incarnation))

    def _crash(self, event: simpy.Event) -> None:
        """Breaks a group, unless it was started again since the crash was planned."""
        group, incarnation = _content(event)
        if incarnation == self._each[group].incarnation and group not in self._dead:
            self._break(group, f"a process of rank {self.groups[group][0]} crashed")

    def _break(self, group: int, reason: str) -> None:
        """Silences a group. The master hears of it after the time that it takes to notice a loss."""
        each = self._each[group]
        each.stop()
        news = (group, each.incarnation, Gone(reason))
        self._after(self.assumptions.failures.noticed_seconds, self._arrive, news)


def _content(event: simpy.Event) -> Any:
    """What an event of `_after` was given."""
    return event.value
