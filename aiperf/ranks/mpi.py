"""The world of several ranks: rank 0 is the master, the others train in groups.

The tag of a message is the incarnation of the group that it belongs to; by it, messages from before a restart
are recognised and dropped. Every rank answers the master directly. A message of the master to a group goes to
its leader, which passes it on; a message to all goes from rank to rank (`tree`).
"""

from __future__ import annotations

import logging
import math
import socket
import time
from collections import deque
from collections.abc import Collection
from dataclasses import replace

from aiperf.errors import WorldError
from aiperf.host.scheduler_warning import noted
from aiperf.journal.run_files import RunFiles
from aiperf.ranks.link import Link, Received
from aiperf.ranks.patience import Patience
from aiperf.ranks.shipping import LOGS_SECONDS, Receiver, is_piece, pieces
from aiperf.ranks.tree import Announcer, after, goes_to_all
from aiperf.ranks.world import Gone
from aiperf.wire.clocks import ClockReading, RoundTrips
from aiperf.wire.layout import Bye, Describe, Described, Disband, Hello, Lost, Place
from aiperf.wire.messages import AskTime, Assign, Evaluate, Quit, TimeOfDay, ToGroup, pack, unpack
from aiperf.wire.reports import Finished, FromGroup, Ready
from aiperf.wire.trial import State

log = logging.getLogger(__name__)

HELLO_SECONDS = 300.0
"""Time in seconds for all ranks to report, once MPI has started them."""
WARNED_SECONDS = 3.0
"""Time in seconds for the ranks that are alive to report after a warning."""
BYE_SECONDS = 20.0
"""Time in seconds for all ranks to leave. A worker alone may take ten to exit."""
HEARTBEAT_SECONDS = 15.0
"""Time in seconds between two beats, by which ranks see that the master is alive and which messages to all
they missed. `MASTER_SILENCE_SECONDS` of the relay is forty times as long."""
REPEAT_SECONDS = 5.0
"""Time in seconds for Quit to reach all ranks along the trees; after that the master sends it directly."""


class MpiWorld:
    """The groups of a run, as the master sees them."""

    def __init__(
        self, link: Link, files: RunFiles, hosts: tuple[str, ...], places: tuple[Place, ...], children: bool
    ) -> None:
        """`hosts` are those of all ranks, `places` those of the ranks that train; `children`: whether they
        train in child processes, which can be restarted."""
        self._link, self._files, self._restartable = link, files, children
        self.hosts = hosts
        self.groups = tuple(dict.fromkeys(place.group for place in places))
        self._group_of = {rank: index for index, group in enumerate(self.groups) for rank in group}
        self._incarnation = [1] * len(self.groups)
        self._dead: set[int] = set()
        """Groups of which a rank is dead, which cannot be restarted."""
        self._apart: set[int] = set()
        """Groups that do not share the run directory, so weights are sent to them."""
        self._announcer = Announcer(link)
        self._again: dict[str, int] = {}
        """Incarnations of the groups that were restarted, by leader."""
        self._avoid: set[int] = set()
        """Ranks that are dead, and those of a restarted group until their first message."""
        self._losses: deque[tuple[int, Gone]] = deque()
        """News of dead groups that was not received yet."""
        self._known_failed: frozenset[int] = frozenset()
        self._receiver = Receiver(files, hosts)
        self._round_trips: dict[int, RoundTrips] = {}
        self._ready: dict[int, Ready] = {}
        """`Ready` of the ranks whose clocks are being compared, by rank. It is passed on when they have
        been."""
        self._beaten = time.monotonic()
        """Time of the last beat."""
        for place in places:
            link.send(place.rank, 0, pack(place))

    def send(self, group: int, message: ToGroup) -> None:
        if group in self._dead:
            return
        leader, tag = self.groups[group][0], self._incarnation[group]
        parent = _weights_needed(message)
        if group in self._apart and parent is not None:
            for piece in self._pieces(parent):
                self._link.send(leader, tag, piece)
        self._link.send(leader, tag, after(self._announcer.number, pack(message)))

    def send_all(self, message: ToGroup) -> None:
        self._announcer.say(message, self._avoid, self._again)

    def receive(self, seconds: float) -> tuple[int, FromGroup | Gone] | None:
        self._beat()
        if self._link.orphaned:
            raise WorldError(
                f"{self._link.launcher} has exited, so the job cannot continue: "
                f"aiperf-hpc resume {self._files.directory}"
            )
        received = None if self._losses else self._link.receive(seconds)
        self._notice_deaths()
        if received is not None:
            return self._heard(received)
        return self._losses.popleft() if self._losses else None

    def clock_of(self, rank: int) -> ClockReading:
        reading = self._round_trips[rank].best
        assert reading is not None, "a rank's Ready is passed on after its answers"
        return reading

    def restart(self, group: int) -> bool:
        if group in self._dead or not self._restartable:
            return False
        self._forget_ready(group)
        self._incarnation[group] += 1
        self._again[str(self.groups[group][0])] = self._incarnation[group]
        self._apart.discard(group)
        self._avoid_from_now(self.groups[group])
        return True

    def close(self) -> None:
        if not self._link.dismissed:
            self.send_all(Quit())
        dismiss(self._link, self._receiver, self._announcer)
        for fault in self._receiver.faults.values():
            log.error("%s", fault)

    def _heard(self, received: Received) -> tuple[int, FromGroup | Gone] | None:
        """Takes a message of a rank; returns it if it is for the master, and not for this world alone."""
        if goes_to_all(received.data):
            self._announcer.answer(received)
            return None
        group = self._group_of[received.source]
        if group in self._dead or received.tag != self._incarnation[group]:
            return None
        self._avoid.discard(received.source)
        if is_piece(received.data):
            self._receiver.take(received.data)
            return None
        message = unpack(FromGroup, received.data)
        if isinstance(message, TimeOfDay):
            return self._compare_clocks(received.source, group, message)
        if isinstance(message, Lost):
            self._forget_ready(group)
            return group, Gone(f"rank {received.source} on {self.hosts[received.source]}: {message.reason}")
        if isinstance(message, Ready):
            if not message.sees_run:
                self._refuse_span(group)
                self._apart.add(group)
            self._ready[received.source], self._round_trips[received.source] = message, RoundTrips()
            self._ask_time(received.source, group)
            return None
        if isinstance(message, Finished):
            reason = self._receiver.faults.pop(self._files.weights(message.trial), "")
            message = replace(message, state=State.FAILED, reason=reason, weights="") if reason else message
        return group, message

    def _ask_time(self, rank: int, group: int) -> None:
        """Asks a rank for its time of day. The shortest of several round trips shows best how far its clock
        is from the master's."""
        number = self._round_trips[rank].ask(time.time(), time.monotonic())
        self._link.send(rank, self._incarnation[group], pack(AskTime(number)))

    def _compare_clocks(self, rank: int, group: int, answer: TimeOfDay) -> tuple[int, FromGroup] | None:
        """Takes an answer of a rank; returns the rank's `Ready` once its clock is known, or cannot be. There
        is no time limit: a rank that was stopped answers when it continues, and the master loses a group that
        stays silent."""
        if rank not in self._ready:
            return None
        self._round_trips[rank].hear(answer.number, answer.wall_seconds, time.monotonic())
        if not self._round_trips[rank].enough:
            self._ask_time(rank, group)
            return None
        return group, self._ready.pop(rank)

    def _forget_ready(self, group: int) -> None:
        for rank in self.groups[group]:
            self._ready.pop(rank, None)

    def _notice_deaths(self) -> None:
        """Gives up the groups of ranks that have died since the last call, and disbands what is left of
        them."""
        if self._link.failed is self._known_failed:
            return
        news, self._known_failed = self._link.failed - self._known_failed, self._link.failed
        if not news:
            return
        for rank in news:
            group = self._group_of[rank]
            if group not in self._dead:
                self._dead.add(group)
                self._forget_ready(group)
                self._losses.append((group, Gone(f"rank {rank} on {self.hosts[rank]} is dead")))
                for other in self.groups[group]:
                    self._link.send(other, self._incarnation[group] + 1, pack(Disband()))
        self._avoid_from_now(news)

    def _avoid_from_now(self, ranks: Collection[int]) -> None:
        """Routes messages to all around these ranks, and beats at once, so that other ranks request the
        messages that these did not forward any more."""
        self._avoid.update(ranks)
        self._beaten = -math.inf

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._beaten > HEARTBEAT_SECONDS:
            self._beaten = now
            self._announcer.beat(self._avoid)

    def _pieces(self, trial: int) -> list[bytes]:
        """The kept weights of a trial in pieces; empty if the file cannot be read, which the group then
        reports itself, because it has no file either."""
        try:
            return list(pieces(self._files, trial))
        except OSError as error:
            log.error("%s cannot be read (%s)", self._files.weights(trial), error.strerror)
            return []

    def _refuse_span(self, group: int) -> None:
        """Raises WorldError if a group that does not share the run directory spans hosts: weights are sent to
        its leader only."""
        hosts = sorted({self.hosts[rank] for rank in self.groups[group]})
        if len(hosts) > 1:
            raise WorldError(
                f"{self._files.directory} is not shared by {', '.join(hosts)}, and a group that spans hosts "
                "needs that; choose a shared directory, or groups within hosts: fewer --devices-per-trial "
                "and no --spread"
            )


def gather(link: Link) -> tuple[str, ...]:
    """The host of every rank. Raises WorldError if some ranks do not report within HELLO_SECONDS, or within
    WARNED_SECONDS after a warning, which a launcher sends to all others if one of its ranks has died."""
    hosts = {0: socket.gethostname()}
    patience = Patience(HELLO_SECONDS)
    while len(hosts) < link.size:
        received = link.receive(1.0)
        if noted():
            patience.shorten(WARNED_SECONDS)
        if received is not None:
            hello = unpack(FromGroup, received.data)
            assert isinstance(hello, Hello), hello
            hosts[received.source] = hello.host
        if patience.is_over or link.failed:
            raise WorldError(_silent(link, hosts))
        if received is None:
            patience.report(_silent(link, hosts))
    return tuple(hosts[rank] for rank in range(link.size))


def _silent(link: Link, hosts: Collection[int]) -> str:
    missing = sorted(set(range(link.size)) - set(hosts) | link.failed)
    return f"no message from the ranks {missing[:10]} of {link.size}; see what they print"


def describe(link: Link, places: tuple[Place, ...]) -> tuple[Described, ...]:
    """The devices that the ranks would bind, in the order of the places."""
    for place in places:
        link.send(place.rank, 0, pack(place))
        link.send(place.rank, 0, pack(Describe()))
    found: dict[int, Described] = {}
    until = time.monotonic() + HELLO_SECONDS
    while len(found) < len(places):
        received = link.receive(1.0)
        message = None if received is None else unpack(FromGroup, received.data)
        if isinstance(message, Described):
            found[message.rank] = message
        if link.failed or time.monotonic() > until:
            raise WorldError(f"{len(places) - len(found)} ranks did not say what device they have")
    return tuple(found[place.rank] for place in places)


def dismiss(link: Link, receiver: Receiver | None = None, announcer: Announcer | None = None) -> bool:
    """Asks all ranks to quit, and waits until all that are alive have said Bye; returns whether they have. A
    second call does not wait.

    `receiver` takes the logs that ranks send before they leave. If `announcer` is given, it has just sent
    Quit to all.
    """
    failed = link.failed
    waiting = set(range(1, link.size)) - failed - link.left
    now = time.monotonic()
    until, latest = now + (0.0 if link.dismissed else BYE_SECONDS), now + LOGS_SECONDS
    direct = now if announcer is None else now + REPEAT_SECONDS
    if link.dismissed:
        direct = math.inf
    link.dismissed = True
    while True:
        now = time.monotonic()
        if now >= direct:
            direct = math.inf
            for rank in waiting:
                link.send(rank, 0, pack(Quit()))
        if not waiting or now >= until:
            return not waiting
        received = link.receive(0.1)
        if link.failed is not failed:
            failed = link.failed
            waiting -= failed
        if received is None:
            continue
        if goes_to_all(received.data):
            if announcer is not None:
                announcer.answer(received)
        elif is_piece(received.data):
            if receiver is not None:
                receiver.take(received.data)
                until = min(latest, time.monotonic() + BYE_SECONDS)
        elif isinstance(unpack(FromGroup, received.data), Bye):
            link.left.add(received.source)
            waiting.discard(received.source)


def _weights_needed(message: ToGroup) -> int | None:
    """The trial whose kept weights the receiver will read."""
    if isinstance(message, Assign):
        return message.trial.parent
    return message.trial if isinstance(message, Evaluate) else None
