"""Messages between ranks over sockets, where no MPI is needed: what is the same for the ranks of one host
(`torchrun`) and of several (`network`).

The kernel buffers what another rank has not read yet, and wakes a rank that waits for room or for a message,
so no rank has to poll.
"""

from __future__ import annotations

import logging
import os
import resource
import selectors
import socket
import threading
import time
from abc import abstractmethod
from collections import deque
from dataclasses import dataclass, field

from aiperf.errors import WorldError
from aiperf.ranks.launcher import LaunchedRank
from aiperf.ranks.link import Link, Received, Waited
from aiperf.ranks.shipping import PIECE_BYTES

log = logging.getLogger(__name__)

READ_BYTES = 1 << 18
"""Maximum number of bytes per read of one connection, so that a rank that sends much does not delay the
others."""
MOST_BYTES = 2 * PIECE_BYTES
"""Maximum length of a message. The longest are pieces of weights and of logs."""
AGAIN_SECONDS = 0.05
"""Time in seconds between two attempts to reach a rank that does not listen yet."""
OTHER_FILES = 256
"""Number of files that the master may open in addition to a connection to every rank."""


class NoRank(Exception):
    """What arrived on a connection is no message of a rank. The message continues "closed the connection of
    …:"."""


@dataclass(eq=False)
class Way:
    """A connection to another rank."""

    socket: socket.socket
    process: str
    """The process at the other end, for messages."""
    rank: int | None = None
    """The rank at the other end; None before its first message."""
    leaving: deque[memoryview] = field(default_factory=deque)
    """What the kernel has not taken yet."""
    coming: bytearray = field(default_factory=bytearray)
    """The beginning of a message whose rest has not arrived."""

    @property
    def closed(self) -> bool:
        return self.socket.fileno() < 0


class SocketLink(Link):
    """Connection of one rank to all others, over sockets."""

    def __init__(self, launched: LaunchedRank) -> None:
        self.rank, self.size, self.fault_tolerant = launched.rank, launched.size, False
        self.failed = frozenset()
        self.threads = False
        self.dismissed, self.left = False, set()
        self._parent = os.getppid()
        self._turn = threading.Lock()
        self._ways: dict[int, Way] = {}
        """The connection for messages to each rank, by rank; its own messages may arrive on another
        connection."""
        self._arrived: deque[Received] = deque()
        """Messages that `receive` has not returned yet."""
        self._listening: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        if self.rank == 0:
            _allow_files(self.size + OTHER_FILES)

    def library(self) -> str:
        return ""

    def receive(self, seconds: float, beside: Waited | None = None) -> Received | None:
        until, dead = time.monotonic() + seconds, self.failed
        while True:
            with self._turn:
                if self._arrived:
                    return self._arrived.popleft()
            if self.failed != dead:
                return None
            left = max(0.0, until - time.monotonic())
            if self._wait(left, beside) or left == 0.0:
                with self._turn:
                    return self._arrived.popleft() if self._arrived else None

    def flush(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self._is_sending() and (left := until - time.monotonic()) > 0:
            self._wait(min(left, AGAIN_SECONDS), None)
        return not self._is_sending()

    def abort(self, code: int) -> None:
        self.abandon()
        os._exit(code)

    def finalize(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()

    # What differs between the two kinds of address

    @abstractmethod
    def _is_waiting(self) -> bool:
        """Whether there are messages to ranks without a connection."""

    @abstractmethod
    def _pause(self) -> float:
        """Time in seconds after which `_keep_up` must be called again."""

    @abstractmethod
    def _keep_up(self) -> None:
        """Does what is due without an event."""

    @abstractmethod
    def _accept(self) -> None:
        """Accepts the connections that wait at the listening socket."""

    @abstractmethod
    def _take(self, way: Way, begin: int) -> int | None:
        """Takes the message that begins at this byte of `way.coming`; returns where it ends, None if its rest
        has not arrived. Raises NoRank."""

    @abstractmethod
    def _refuse(self, way: Way, fault: str) -> None:
        """Closes a connection on which something else than a message arrived."""

    @abstractmethod
    def _note_end(self, way: Way) -> None:
        """Notes that the other end has closed a connection."""

    def _most_bytes(self, way: Way) -> int:
        """Maximum number of bytes of the next read of a connection."""
        return READ_BYTES

    # What is the same

    def _is_sending(self) -> bool:
        with self._turn:
            return self._is_waiting() or any(way.leaving for way in self._ways.values())

    def _wait(self, seconds: float, beside: Waited | None) -> bool:
        """Waits at most `seconds` for events and handles them; returns whether `beside` can be read."""
        if beside is not None:
            self._selector.register(beside, selectors.EVENT_READ)
        try:
            events = self._selector.select(min(seconds, self._pause()))
        finally:
            if beside is not None:
                self._selector.unregister(beside)
        with self._turn:
            self._keep_up()
            for key, happened in events:
                if key.fileobj is self._listening:
                    self._accept()
                elif isinstance(key.data, Way):
                    if happened & selectors.EVENT_READ:
                        self._pull(key.data)
                    if happened & selectors.EVENT_WRITE:
                        self._push(key.data)
        return any(key.fileobj is beside for key, _ in events)

    def _pull(self, way: Way) -> None:
        """Reads what has arrived on a connection, and closes it if the other end has, or speaks as no
        rank."""
        if way.closed:
            return
        try:
            data = way.socket.recv(self._most_bytes(way))
        except BlockingIOError:
            return
        except OSError:  # reset by the other end, or not reachable for very long
            data = b""
        if not data:
            self._note_end(way)
            self._drop(way)
            return
        way.coming += data
        begin = 0
        try:
            while (end := self._take(way, begin)) is not None:
                begin = end
        except NoRank as fault:
            self._refuse(way, str(fault))
            return
        del way.coming[:begin]

    def _push(self, way: Way) -> None:
        """Sends as much as the other rank has room for. The selector reports when there is room for the
        rest."""
        if way.closed:
            way.leaving.clear()
            return
        events = selectors.EVENT_READ
        try:
            while way.leaving:
                part = way.leaving[0]
                sent = way.socket.send(part)
                if sent == len(part):
                    way.leaving.popleft()
                else:
                    way.leaving[0] = part[sent:]
        except BlockingIOError:
            events |= selectors.EVENT_WRITE
        except OSError:  # the connection stays open, because messages of the other rank may be unread
            way.leaving.clear()
        if self._selector.get_key(way.socket).events != events:
            self._selector.modify(way.socket, events, way)

    def _drop(self, way: Way) -> None:
        """Closes a connection after the other rank has left or died; messages to it are dropped."""
        self._selector.unregister(way.socket)
        way.socket.close()
        way.leaving.clear()


def _allow_files(number: int) -> None:
    """Raises this process's soft limit on open files. Raises WorldError if the hard limit is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != hard < number:
        raise WorldError(
            f"the master needs {number} open files, one per rank, but the limit is {hard}; raise it (ulimit "
            f"-Hn {number}), or start the ranks with mpiexec or srun"
        )
    if resource.RLIM_INFINITY != soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
