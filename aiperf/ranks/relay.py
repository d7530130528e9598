"""A rank that is not the master: it speaks for the worker process that it started, over MPI.

Training runs in a child of the rank, so that what kills a trial's process (a fault in a library, the
out-of-memory killer, which takes the largest process) leaves the rank, and with it the job, alive on
every MPI. Only Horovod over MPI must train in the rank itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock

from aiperf.errors import AiperfError
from aiperf.files import RunFiles
from aiperf.ranks.link import Link, Received
from aiperf.ranks.process import WorkerProcess, describe_device
from aiperf.ranks.shipping import LOGS_SECONDS, Receiver, is_piece, log_pieces, pieces
from aiperf.trial import State
from aiperf.wire.layout import Bye, Describe, Disband, Hello, Lost, MasterBeat, Place
from aiperf.wire.messages import Assign, Finished, FromGroup, Quit, Ready, Setup, ToGroup, pack, unpack

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.01  # between two looks at MPI while the worker says nothing
MASTER_SILENCE_SECONDS = 600.0  # it beats every 15 s; a stalled file system may hold it up
RANKS_WITH_A_LOG = 64  # beyond, the ranks of a host share one


class Post:
    """What comes from the master to this rank, and what goes to it."""

    def __init__(self, link: Link, device: str) -> None:
        """`device` is the kind that the rank will bind."""
        link.send(0, 0, pack(Hello(socket.gethostname())))
        self.link, self.device, self.tag = link, device, 0
        self.place: Place | None = None
        self.quit = Event()
        self.files: RunFiles | None = None
        self._early: deque[Received] = deque()
        """What the leader handed on before the master had told this rank its place."""
        self._apart = False
        self._parents: dict[int, int | None] = {}
        self._receiver: Receiver | None = None
        self._heard = time.monotonic()
        self._sending = Lock()

    def receive(self, seconds: float) -> ToGroup | None:
        """The next message, if one comes in so many seconds. Raises EOFError: the master is gone."""
        waiting = self._early and self.place is not None
        received = self._early.popleft() if waiting else self.link.receive(seconds)
        silence = time.monotonic() - self._heard
        if 0 in self.link.failed or self.link.orphaned or silence > MASTER_SILENCE_SECONDS:
            raise EOFError
        if received is None:
            return None
        self._heard = time.monotonic()
        if self.place is None and received.source != 0:
            self._early.append(received)
            return None
        if is_piece(received.data):
            assert self._receiver is not None
            self._receiver.take(received.data)
            return None
        message: ToGroup = unpack(ToGroup, received.data)
        if isinstance(message, MasterBeat):
            return None
        if isinstance(message, Place):
            known, self.place = self.place, message
            if known is not None:  # it was told before, to describe its device
                return None
        elif isinstance(message, Describe):
            assert self.place is not None
            self.send(describe_device(self.place, self.device))
            return None
        elif self.place is not None and self.place.leads and not isinstance(message, (Quit, Disband)):
            for rank in self.place.group[1:]:
                self.link.send(rank, received.tag, received.data)
        if isinstance(message, Setup):
            begins, self.files = self.files is None, RunFiles(Path(message.directory))
            if begins and message.leg == 0:  # a log that lies here is of another run
                with contextlib.suppress(OSError):  # what stays cannot be written to, as the worker will say
                    self._log_of(self.files).unlink()
            self._receiver = Receiver(self.files)
        if isinstance(message, Assign):
            self._parents[message.trial.number] = message.trial.parent
        if isinstance(message, Quit):
            self.quit.set()
        self.tag = max(self.tag, received.tag)
        return message

    def send(self, message: FromGroup) -> None:
        with self._sending:  # a file's pieces and the news of it stay together
            if isinstance(message, Ready):
                self._apart = not message.sees_run
                message = self._with_mpi(message)
            if self._apart and isinstance(message, Finished):
                message = self._shipped(message) if message.weights else message
                self._drop_parent(message.trial)
            self.link.send(0, self.tag, pack(message))

    def send_log(self) -> bool:
        """What the master cannot read where it lies. Whether there was something to send."""
        if not self._apart or self.files is None:
            return False
        try:
            for piece in log_pieces(self._log_of(self.files), self.link.rank):
                self.link.send(0, self.tag, piece)
        except OSError as error:
            log.error("rank %d: its log cannot be sent (%s)", self.link.rank, error.strerror)
        return True

    def _log_of(self, files: RunFiles) -> Path:
        return files.witness(socket.gethostname(), self.link.rank)

    def _with_mpi(self, ready: Ready) -> Ready:
        """The worker process has no MPI of its own to ask."""
        library = self.link.library()
        return replace(ready, settings={**ready.settings, "MPI": library}) if library else ready

    def _shipped(self, message: Finished) -> Finished:
        assert self.files is not None
        try:
            for piece in pieces(self.files, message.trial):
                self.link.send(0, self.tag, piece)
            self.files.weights(message.trial).unlink()
        except OSError as error:
            reason = f"{self.files.weights(message.trial)} cannot be sent ({error.strerror})"
            return replace(message, state=State.FAILED, reason=reason, weights="")
        return message

    def _drop_parent(self, trial: int) -> None:
        """The master sends a parent's weights with every child."""
        parent = self._parents.pop(trial, None)
        if parent is not None and parent not in self._parents.values() and self.files is not None:
            self.files.weights(parent).unlink(missing_ok=True)


class MpiChannel:
    """The way to the master of a worker that trains in the rank itself."""

    def __init__(self, post: Post) -> None:
        self._post = post

    def send(self, message: FromGroup) -> None:
        self._post.send(message)

    def receive(self) -> ToGroup:
        while (message := self._post.receive(1.0)) is None:
            pass
        return message


def serve(link: Link, device: str, backend: str) -> None:
    """From the first word of this rank to its last. Ends the process when the master is gone."""
    post = Post(link, device)
    try:
        while post.place is None:
            if isinstance(post.receive(1.0), Quit):
                break
        else:
            if backend == "horovod":
                _train_here(post, post.place, device)
            else:
                _Relay(post, post.place, device).run()
    except EOFError:
        log.error("rank %d: the master is gone", link.rank)
        os._exit(1)
    sent = post.send_log()
    link.send(0, 0, pack(Bye()))
    link.flush(LOGS_SECONDS if sent else 5.0)


class _Relay:
    """Hands messages on between the master and the worker process."""

    def __init__(self, post: Post, place: Place, device: str) -> None:
        self.post, self.place, self.device = post, place, device
        self.worker: WorkerProcess | None = None
        self.incarnation = 0

    def run(self) -> None:
        """Until Quit."""
        try:
            while not isinstance(message := self.post.receive(0 if self.worker else LOOK_SECONDS), Quit):
                if message is not None:
                    self._down(message)
                if self.worker is not None:
                    self._up(self.worker)
            if self.worker is not None:
                self.worker.send(pack(message))
                self.worker.end()
                self.worker = None
        finally:
            self._kill()

    def _down(self, message: ToGroup) -> None:
        if self.post.tag > self.incarnation:
            self.incarnation = self.post.tag
            self._kill()
            if isinstance(message, Setup):
                self._start()
        if self.worker is not None:
            self.worker.send(pack(message))

    def _start(self) -> None:
        try:
            self.worker = WorkerProcess(self.place, self.device, self._log())
        except OSError as error:
            self.post.send(Lost(f"no worker can be started: {error}"))

    def _up(self, worker: WorkerProcess) -> None:
        try:
            data = worker.receive(LOOK_SECONDS)
        except EOFError:
            self.post.send(Lost(worker.obituary()))
            self._kill()
            return
        if data is not None:
            self.post.send(unpack(FromGroup, data))

    def _kill(self) -> None:
        if self.worker is not None:
            self.worker.kill()
            self.worker = None

    def _log(self) -> Path:
        files, host = self.post.files, socket.gethostname()
        assert files is not None
        return files.log(host, self.place.rank if self.post.link.size <= RANKS_WITH_A_LOG else None)


def _train_here(post: Post, place: Place, device: str) -> None:
    from aiperf.ranks.in_rank import train_in_rank

    try:
        train_in_rank(post.link, MpiChannel(post), place, device)
    except AiperfError as error:
        post.send(Lost(str(error)))
        while not post.quit.is_set():  # which the worker's listener may take
            post.receive(0.1)
