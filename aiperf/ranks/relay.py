"""A rank that is not the master: it starts a worker process and relays its messages over MPI.

Training runs in a child of the rank, so that whatever kills a trial's process (a fault in a library, or the
out-of-memory killer, which takes the largest process) leaves the rank alive, and with it the job, on every
MPI. Only Horovod over MPI must train in the rank itself.

Messages reach a rank in three ways: from the master, from the leader of its group, and from rank to rank
along the trees. Each way keeps its order, but one may be faster than another. So a message that must be
handled after one to all carries that one's number, and is held until that one has been handled. A message to
all may overtake an earlier one to a group, which does no harm: only Stop and Quit are sent while a group has
not answered, and a worker that was stopped returns a later trial at once.
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
from queue import SimpleQueue
from threading import Event, Lock, Thread

from aiperf.errors import AiperfError
from aiperf.journal.run_files import RunFiles
from aiperf.pretending.assumptions import Assumptions
from aiperf.ranks.link import Link, Received, Waited
from aiperf.ranks.process import RankWorker, device_at, worker_at
from aiperf.ranks.shipping import LOGS_SECONDS, Receiver, is_piece, log_pieces, pieces
from aiperf.ranks.tree import Hearer, Numbered, goes_to_all, split
from aiperf.wire.layout import Bye, Describe, Disband, Hello, Lost, MasterBeat, Place
from aiperf.wire.messages import AskTime, Assign, Quit, Setup, TimeOfDay, ToGroup, pack, unpack
from aiperf.wire.reports import Finished, FromGroup, Ready
from aiperf.wire.trial import State

log = logging.getLogger(__name__)

MASTER_SILENCE_SECONDS = 600.0
"""Time in seconds without a sign of the master after which a rank takes it for dead. It beats every 15 s, but
a file system that stalls may hold it up."""
LISTEN_SECONDS = 1.0
"""Time in seconds between two checks whether the run is over."""
LOOK_SECONDS = 1.0
"""Time in seconds between two checks whether the master is alive, while no message arrives."""
RANKS_WITH_A_LOG = 64
"""Maximum number of ranks that have a log each; with more, those of a host share one."""


def serve(link: Link, device: str, backend: str, pretend: Assumptions | None = None) -> None:
    """Serves the master from this rank's first message to its last. Ends the process if the master is
    gone."""
    post = Post(link, device, pretend)
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
        link.abandon()
        os._exit(1)
    sent = post.send_log()
    link.send(0, 0, pack(Bye()))
    link.flush(LOGS_SECONDS if sent else 5.0)


class _Relay:
    """Passes messages on between the master and the worker process."""

    def __init__(self, post: Post, place: Place, device: str) -> None:
        self.post, self.place, self.device = post, place, device
        self.worker: RankWorker | None = None
        self.incarnation = 0
        """The incarnation of the group that the worker belongs to: 0 before the first Setup."""

    def run(self) -> None:
        """Relays until Quit."""
        try:
            while not isinstance(message := self.post.receive(LOOK_SECONDS, self.worker), Quit):
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
        """Passes a message on to the worker; one of a new incarnation ends the old worker first."""
        if self.post.tag > self.incarnation:
            self.incarnation = self.post.tag
            self._kill()
            if isinstance(message, Setup):
                self._start()
        if self.worker is not None:
            self.worker.send(pack(message))

    def _start(self) -> None:
        try:
            self.worker = worker_at(self.place, self.device, self._log(), self.post.pretend)
        except OSError as error:
            self.post.send(Lost(f"no worker can be started: {error}"))

    def _up(self, worker: RankWorker) -> None:
        """Passes a message of the worker on to the master, or the news of its end."""
        try:
            data = worker.receive(0.0)
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
    """Trains in this process, as Horovod needs it. After an error the rank still serves until Quit, so that
    the other ranks can leave MPI."""
    from aiperf.ranks.in_rank import train_in_rank

    channel = MpiChannel(post)
    try:
        train_in_rank(post.link, channel, place, device)
    except AiperfError as error:
        post.send(Lost(str(error)))
        channel.wait_for_quit()  # which the worker's listener may take


class Post:
    """The mailbox of a rank: messages from the master and to it."""

    def __init__(self, link: Link, device: str, pretend: Assumptions | None = None) -> None:
        """Reports this rank to the master. `device` is the kind that the rank will bind, unless it
        pretends."""
        link.send(0, 0, pack(Hello(socket.gethostname())))
        self.link, self.device, self.pretend, self.tag = link, device, pretend, 0
        self.place: Place | None = None
        self.quit = Event()
        self.files: RunFiles | None = None
        self._hearer = Hearer(link)
        self._to_all: dict[int, Numbered] = {}
        """Messages to all that have not been handled yet, by number."""
        self._number = 0
        """Number of the last message to all that was handled."""
        self._direct: deque[Received] = deque()
        """Messages for this group that have not been handled yet."""
        self._at_once: deque[tuple[int, ToGroup]] = deque()
        """Messages that wait for no other, each with its tag."""
        self._apart = False
        """Whether the rank does not share the run directory, so weights and logs are sent by message."""
        self._parents: dict[int, int | None] = {}
        """Parents of the trials in flight, by trial."""
        self._receiver: Receiver | None = None
        self._heard = time.monotonic()
        """Time of the last sign of the master."""
        self._sending = Lock()

    def receive(self, seconds: float, beside: Waited | None = None) -> ToGroup | None:
        """The next message, or None if none arrives within `seconds` or before `beside` can be read.

        Raises EOFError if the master is gone.
        """
        message = self._next()
        if message is not None:
            return message
        received = self.link.receive(seconds, beside)
        silence = time.monotonic() - self._heard
        if 0 in self.link.failed or self.link.orphaned or silence > MASTER_SILENCE_SECONDS:
            raise EOFError
        if received is not None:
            self._take(received)
        return self._next()

    def _take(self, received: Received) -> None:
        """Sorts a message by the way on which it came; `_next` handles it when its turn has come."""
        if goes_to_all(received.data):
            numbered = self._hearer.take(received)
            if numbered is None:  # a repetition, or a request of another rank: no sign of the master
                return
            message = numbered.content.message
            if isinstance(message, Quit):
                self._at_once.append((0, message))
            elif not isinstance(message, MasterBeat) and numbered.number > self._number:
                self._to_all[numbered.number] = numbered
        elif is_piece(received.data):
            assert self._receiver is not None
            self._receiver.take(received.data)
        elif received.source == 0 and received.data.startswith(b"{"):  # it need not come after any other
            message = unpack(ToGroup, received.data)
            if isinstance(message, AskTime):
                self.link.send(0, received.tag, pack(TimeOfDay(message.number, time.time())))
            elif isinstance(message, (Place, Describe, Disband, Quit)):
                self._at_once.append((received.tag, message))
            else:
                self._direct.append(received)
        else:
            self._direct.append(received)
        self._heard = time.monotonic()

    def _next(self) -> ToGroup | None:
        """The next message whose turn it is; None if none has arrived."""
        while self._at_once:
            tag, message = self._at_once.popleft()
            if (heard := self._heed(tag, message)) is not None:
                return heard
        while self.place is not None and (numbered := self._to_all.get(self._number + 1)) is not None:
            message = numbered.content.message
            tag = numbered.content.incarnations.get(str(self.place.group[0]), 1)
            if tag > self.tag and not isinstance(message, Setup):
                break  # the Setup of that incarnation is on its way
            del self._to_all[self._number + 1]
            self._number += 1
            if tag >= self.tag:
                return self._heed(tag, message)
        if self.place is None or not self._direct:
            return None
        received = self._direct[0]
        number, data = split(received.data)
        # A restarted group does not wait for messages that were sent to its earlier incarnation.
        if number > self._number and received.tag <= max(self.tag, 1):
            return None
        self._direct.popleft()
        while self._number < number:
            self._number += 1
            self._to_all.pop(self._number, None)
        if self.place.leads:
            for rank in self.place.group[1:]:
                self.link.send(rank, received.tag, received.data)
        message = unpack(ToGroup, data)
        return self._heed(received.tag, message)

    def _heed(self, tag: int, message: ToGroup) -> ToGroup | None:
        """Does what a message means for the rank itself, and returns it for the worker; None if it was for
        the rank only."""
        if isinstance(message, Place):
            known, self.place = self.place, message
            if known is not None:  # the place was sent before, with the request to describe the device
                return None
        elif isinstance(message, Describe):
            assert self.place is not None
            self.send(device_at(self.place, self.device, self.pretend))
            return None
        elif isinstance(message, Setup):
            begins, self.files = self.files is None, RunFiles(Path(message.directory), salt=message.salt)
            if begins and message.leg == 0:  # a log that exists by now is from another run
                with contextlib.suppress(OSError):  # the worker reports a log that it cannot write to
                    self._log_of(self.files).unlink()
            self._receiver = Receiver(self.files)
        elif isinstance(message, Assign):
            self._parents[message.trial.number] = message.trial.parent
        elif isinstance(message, Quit):
            self.quit.set()
        self.tag = max(self.tag, tag)
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
        """Sends the rank's log to a master that does not share the run directory. Returns whether it had
        to."""
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
        """Adds the MPI library to the settings; the worker process does not use MPI and cannot know it."""
        library = self.link.library()
        return replace(ready, settings={**ready.settings, "MPI": library}) if library else ready

    def _shipped(self, message: Finished) -> Finished:
        """Sends the weights of a trial ahead of the news of them; the news is of a failure if they cannot be
        read."""
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
        """Removes a parent's weights after the last child in flight: the master sends them with every
        child."""
        parent = self._parents.pop(trial, None)
        if parent is not None and parent not in self._parents.values() and self.files is not None:
            self.files.weights(parent).unlink(missing_ok=True)


class MpiChannel:
    """Channel to the master for a worker that trains in the rank's own process (Horovod)."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._gone = False
        self._came: SimpleQueue[ToGroup | None] = SimpleQueue()
        """Messages for the worker; None when the master is gone."""
        # A thread of its own, because other ranks wait for the messages that this rank forwards, even while
        # the worker reads its data.
        Thread(target=self._listen, name="post", daemon=True).start()

    def send(self, message: FromGroup) -> None:
        self._post.send(message)

    def receive(self) -> ToGroup:
        message = self._came.get()
        if message is None:
            raise EOFError
        return message

    def wait_for_quit(self) -> None:
        """Raises EOFError when the master is gone."""
        while not self._post.quit.wait(LISTEN_SECONDS):
            if self._gone:
                raise EOFError

    def _listen(self) -> None:
        try:
            while not self._post.quit.is_set():
                message = self._post.receive(LISTEN_SECONDS)
                if message is not None:
                    self._came.put(message)
        except Exception as error:  # whatever it is, nothing more can arrive
            if not isinstance(error, EOFError):
                log.exception("rank %d no longer receives messages from the master", self._post.link.rank)
            self._gone = True
            self._came.put(None)
