"""Groups whose trials are processes that NNI starts, one for each trial, all on this machine.

There are as many groups as NNI runs trials at the same time. While a group has no trial, a worker of our own
takes its place: at the start, to be initialised and measured, and at the end, for the test.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, Listener
from typing import Any

from aiperf.config import Config
from aiperf.host.other_users import NotOurs
from aiperf.journal.run_files import RunFiles
from aiperf.on_nni.trial_messages import (
    Given,
    Over,
    ProcessBegan,
    TrialDescribed,
    TrialWanted,
    hear,
    refuse_stranger,
    tell,
)
from aiperf.ranks.process import WorkerProcess, describe_device
from aiperf.ranks.ranks import Ranks
from aiperf.ranks.world import Gone, World
from aiperf.wire.clocks import SAME_CLOCK, ClockReading
from aiperf.wire.layout import Described, Place
from aiperf.wire.messages import (
    Assign,
    CheckDevice,
    Evaluate,
    Quit,
    Release,
    Setup,
    Stop,
    ToGroup,
    pack,
    unpack,
)
from aiperf.wire.reports import Finished, FromGroup, Ready
from aiperf.wire.trial import BLOCK_SECONDS, State
from nas.frozen import frozen

log = logging.getLogger(__name__)

STALE_SECONDS = 300.0
"""Time limit in seconds from the answer to NNI to the first message of the trial's process. NNI starts it
within seconds, but imports torch on a file system that may be slow; if it never comes, the group would wait
forever."""


@dataclass
class _Slot:
    """State of a group."""

    place: Place
    standing: WorkerProcess | None = None
    """Our own worker, if it takes the group's place now."""
    waiting: deque[Assign] = field(default_factory=deque)
    """Trials that have not been passed to NNI yet."""
    given: Assign | None = None
    """The trial that was passed to NNI and has not finished."""
    given_at: float = 0.0
    """Time at which it was passed, on the monotonic clock."""
    trial: Connection | None = None
    """Connection to the process that trains it."""
    ready: Ready | None = None
    """What our own worker said, with which the process of a trial must agree."""
    replaced: bool = False
    """Whether our own worker is a second one, for the end, whose `Ready` must not be reported again."""


class NniWorld:
    """A world (aiperf.ranks.world.World) behind a socket, which NNI's tuner and trials call."""

    def __init__(self, files: RunFiles, places: tuple[Place, ...], device: str) -> None:
        """Starts a worker for each place, and listens at a socket whose address is written into the run
        directory."""
        self.groups: tuple[tuple[int, ...], ...] = tuple((place.rank,) for place in places)
        self._files, self._device = files, device
        self._slots = [_Slot(place) for place in places]
        # No SimpleQueue: up to Python 3.12 its `get` loses its time limit, and waits for ever, if a signal's
        # handler returns when the time is over.
        self._heard: queue.Queue[tuple[int, FromGroup | Gone]] = queue.Queue()
        """Messages for the master, from the threads that listen."""
        self._changed = threading.Condition()
        """Guards the slots; notified when one changes."""
        self._closing = False
        """Whether no further trial may begin."""
        self._leaving: list[threading.Thread] = []
        """Threads that wait for the end of our own workers."""
        self._setup: Setup | None = None
        """That of a process that is started later, which has nobody to measure the fabric with."""
        self._deadline: float | None = None
        self._block_seconds = BLOCK_SECONDS
        for index in range(len(self._slots)):
            self._stand(index)
        # In a folder that only this user can enter.
        self._listener = Listener(None, "AF_UNIX")
        files.socket_address.write_text(str(self._listener.address), encoding="utf-8")
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    def send(self, group: int, message: ToGroup) -> None:
        """Sends a message to whatever works in the place of the group; a trial waits until NNI asks for
        one."""
        slot = self._slots[group]
        with self._changed:
            if isinstance(message, Setup):
                self._setup = replace(message, fabric_seconds=0.0)
            elif isinstance(message, Assign):
                self._dismiss(slot)
                slot.waiting.append(message)
            elif isinstance(message, Release):
                left = message.seconds_left
                self._deadline = None if left is None else time.monotonic() + left
                self._block_seconds = message.block_seconds
            elif isinstance(message, Stop):
                self._closing = True
                self._refuse_waiting(group)
            elif isinstance(message, CheckDevice | Evaluate) and slot.standing is None:
                self._stand(group)
                slot.replaced = True
                if self._setup is not None and slot.standing is not None:
                    slot.standing.send(pack(self._setup))
            self._pass_on(slot, message)
            self._changed.notify_all()

    def send_all(self, message: ToGroup) -> None:
        for group in range(len(self._slots)):
            self.send(group, message)

    def receive(self, seconds: float) -> tuple[int, FromGroup | Gone] | None:
        """The next message of a group; None after `seconds`. It also notices the deadline, and processes that
        NNI never started."""
        with self._changed:
            if self._deadline is not None and time.monotonic() >= self._deadline:
                self._closing = True
                for group in range(len(self._slots)):
                    self._refuse_waiting(group)
                self._changed.notify_all()
            for group, slot in enumerate(self._slots):
                if slot.given and not slot.trial and time.monotonic() > slot.given_at + STALE_SECONDS:
                    slot.given = None
                    self._heard.put((group, Gone(f"NNI started no process in {STALE_SECONDS:.0f} s")))
        try:
            return self._heard.get(timeout=seconds)
        except queue.Empty:
            return None

    def clock_of(self, rank: int) -> ClockReading:
        """All ranks are on this host, whose clock is the master's."""
        return SAME_CLOCK

    def restart(self, group: int) -> bool:
        """Forgets the trials of the group and starts our own worker in its place."""
        with self._changed:
            slot = self._slots[group]
            slot.waiting.clear()
            slot.given = None
            if slot.trial is not None:
                slot.trial.close()
                slot.trial = None
            self._dismiss(slot)
            slot.replaced = False
            self._stand(group)
        return True

    def close(self) -> None:
        """Ends our own workers; NNI ends the processes of its trials."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._files.socket_address.unlink(missing_ok=True)
        self._listener.close()
        for slot in self._slots:
            self._dismiss(slot)
        for leaving in self._leaving:
            leaving.join()

    # Our own workers

    def _stand(self, group: int) -> None:
        """Starts a worker of our own in the place of a group."""
        slot = self._slots[group]
        process = WorkerProcess(slot.place, self._device, self._files.log(socket.gethostname()))
        slot.standing = process
        threading.Thread(target=self._listen, args=(group, process), daemon=True).start()

    def _dismiss(self, slot: _Slot) -> None:
        """Ends our own worker, whose memory a trial needs."""
        process, slot.standing = slot.standing, None
        if process is not None:
            process.send(pack(Quit()))
            leaving = threading.Thread(target=process.end)
            leaving.start()
            self._leaving.append(leaving)

    def _listen(self, group: int, process: WorkerProcess) -> None:
        """Receives the messages of our own worker, as long as it takes the group's place."""
        slot = self._slots[group]
        while slot.standing is process:
            try:
                data = process.receive(0.2)
            except (EOFError, OSError, ValueError):
                if slot.standing is process:
                    slot.standing = None
                    self._heard.put((group, Gone(process.obituary())))
                return
            if data is not None:
                self._take_in(group, unpack(FromGroup, data), known=slot.replaced)

    def _take_in(self, group: int, message: FromGroup, known: bool) -> None:
        """Takes a message for the master. `known`: a `Ready` of this group was reported before, so that a
        second one would look like a restart."""
        if isinstance(message, Ready):
            if known:
                return
            self._slots[group].ready = message
        self._heard.put((group, message))

    # NNI's tuner and trials

    def _accept(self) -> None:
        """Accepts connections of the tuner and of trials, each with a thread of its own."""
        while not self._closing:
            try:
                connection = self._listener.accept()
            except OSError:
                return
            assert isinstance(connection, Connection)
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: Connection) -> None:
        """Serves a connection, by its first message. Whatever else arrives closes it, and nothing more."""
        with contextlib.suppress(EOFError, OSError), connection:
            try:
                refuse_stranger(connection)
                word = hear(connection)
            except (NotOurs, ValueError, OSError) as error:
                log.error("a connection to the socket for NNI was closed: %s", error)
                return
            if isinstance(word, TrialWanted):
                tell(connection, self._next())
            elif isinstance(word, ProcessBegan):
                self._serve(connection, word.trial)

    def _next(self) -> TrialDescribed | Over:
        """Waits for the next trial that no process has; Over if there will be none."""
        with self._changed:
            while not self._closing:
                for slot in self._slots:
                    if slot.given is None and slot.waiting:
                        slot.given, slot.given_at = slot.waiting.popleft(), time.monotonic()
                        return TrialDescribed(self._parameters(slot.given))
                self._changed.wait(1.0)
        return Over()

    def _serve(self, connection: Connection, trial: int) -> None:
        """Passes messages between the master and the process of one trial, until it has finished."""
        with self._changed:
            group = next(
                (i for i, s in enumerate(self._slots) if s.given and s.given.trial.number == trial), -1
            )
            if group < 0 or self._setup is None:
                tell(connection, Over())
                return
            slot = self._slots[group]
            assign, slot.trial = slot.given, connection
            left = None if self._deadline is None else self._deadline - time.monotonic()
            assert assign is not None
            release = Release(left, block_seconds=self._block_seconds)
            with contextlib.suppress(OSError):  # that it has ended is noticed below, and the group is lost
                tell(connection, Given(slot.place, self._device))
                for message in (self._setup, release, *([Stop()] if self._closing else []), assign):
                    connection.send_bytes(pack(message))
        try:
            while True:
                found = unpack(FromGroup, connection.recv_bytes())
                self._refuse_difference(slot, found)
                self._take_in(group, found, known=True)
                if isinstance(found, Finished):
                    break
        except (EOFError, OSError):
            with self._changed:
                if slot.trial is connection:
                    slot.trial, slot.given = None, None
                    self._heard.put(
                        (group, Gone(f"the process of trial {trial} ended before it had finished"))
                    )
            return
        with self._changed:
            slot.trial, slot.given = None, None
            self._changed.notify_all()
        connection.send_bytes(pack(Quit()))
        with contextlib.suppress(EOFError, OSError):
            connection.recv_bytes()  # waits until the process has ended, so that it can read all messages

    def _refuse_difference(self, slot: _Slot, message: FromGroup) -> None:
        """Raises EOFError for a process whose code, data, weights or device differ from our own worker's."""
        if isinstance(message, Ready) and slot.ready is not None:
            for what in ("code_hash", "data", "initial_weights", "device"):
                if getattr(message, what) != getattr(slot.ready, what):
                    raise EOFError(f"another {what}")

    def _pass_on(self, slot: _Slot, message: ToGroup) -> None:
        """Sends a message to whatever works in the place of a group now: our own worker or a trial's
        process."""
        if isinstance(message, Assign):  # which the process gets when it calls
            return
        if slot.standing is not None:
            slot.standing.send(pack(message))
        elif slot.trial is not None:
            with contextlib.suppress(OSError):
                slot.trial.send_bytes(pack(message))

    def _refuse_waiting(self, group: int) -> None:
        """Returns the trials that no process has begun, in the way in which a worker returns them."""
        slot = self._slots[group]
        # Also the trial that NNI has been told of, if its process has not called yet.
        never = [*slot.waiting, *([slot.given] if slot.given is not None and slot.trial is None else [])]
        slot.waiting.clear()
        if slot.trial is None:
            slot.given = None
        for assign in never:
            finished = Finished(assign.trial.number, assign.attempt, State.WAITING, "never began")
            self._heard.put((group, finished))

    def _parameters(self, assign: Assign) -> Mapping[str, Any]:
        """Parameters of a trial, which NNI's page shows and its process needs."""
        trial = assign.trial
        edits = ", ".join(type(morphism).__name__ for morphism in trial.morphisms)
        return {
            "trial": trial.number,
            "run": str(self._files.directory),
            "parent": "none" if trial.parent is None else trial.parent,
            "morphisms": edits or "none",
            "epochs": trial.epochs,
            "learning_rate": trial.hyper.learning_rate,
            "batch_size": trial.hyper.batch_size,
            "momentum": trial.hyper.momentum,
            "weight_decay": trial.hyper.weight_decay,
            "label_smoothing": trial.hyper.label_smoothing,
            "dropout": trial.hyper.dropout,
        }


@frozen
class NniRanks(Ranks):
    """The ranks of a run under NNI, all on this machine, each a group of its own."""

    concurrency: int = 1
    """Number of trials that NNI runs at the same time."""

    def places(self, config: Config) -> tuple[Place, ...]:
        ranks = range(1, self.concurrency + 1)
        return tuple(
            Place(rank=rank, group=(rank,), device_index=rank - 1, ranks_on_host=self.concurrency)
            for rank in ranks
        )

    def devices(self, config: Config) -> tuple[Described, ...]:
        return self.found(tuple(describe_device(place, self.options.device) for place in self.places(config)))

    def world(self, config: Config, files: RunFiles) -> World:
        return NniWorld(files, self.places(config), self.options.device)
