"""Messages between the ranks that torchrun started on one host, where no MPI is needed.

Each rank listens at a socket in a folder that only its owner can enter. Two ranks that exchange messages have
a connection. The kernel buffers what the other rank has not read yet, and wakes a rank that waits for room or
for a message, so no rank has to poll. If a rank dies, the master notices it by the end of its connection, and
closes the run in the half minute after which torchrun kills the others. A process of another user, or
one that does not speak as a rank, is refused, and the run continues.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import selectors
import shutil
import socket
import stat
import struct
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from aiperf.errors import WorldError
from aiperf.host import variables
from aiperf.host.other_users import NotOurs, make_private, peer
from aiperf.ranks.launcher import MOST_RANKS, LaunchedRank
from aiperf.ranks.link import Link, Received, Waited
from aiperf.ranks.shipping import PIECE_BYTES

log = logging.getLogger(__name__)

HEAD = struct.Struct("<QQQ")
"""Header of each message: its length, its source, its tag."""
READ_BYTES = 1 << 18
"""Maximum number of bytes per read of one connection, so that a rank that sends much does not delay the
others."""
MOST_BYTES = 2 * PIECE_BYTES
"""Maximum length of a message. The longest are pieces of weights and of logs."""
AGAIN_SECONDS = 0.05
"""Time in seconds between two attempts to reach a rank that does not listen yet."""
YOUNG_SECONDS = 60.0
"""Time in seconds for the ranks of a run to begin to listen: until then its folder looks dead."""
CLEARED = 3
"""Number of attempts to remove the folder, because other ranks may still be leaving."""
OTHER_FILES = 256
"""Number of files that the master may open in addition to a connection to every rank."""


@dataclass(eq=False)
class _Way:
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


class SocketLink(Link):
    """Connection of one rank to all others of its host."""

    launcher = "torchrun"

    def __init__(self, launched: LaunchedRank, run_id: str) -> None:
        """Opens the rank's socket. Raises WorldError if the ranks are on several hosts."""
        remedy = "start the ranks with torchrun"
        here = variables.whole(os.environ, "LOCAL_WORLD_SIZE", 1, MOST_RANKS, remedy)
        if here not in (None, launched.size):
            raise WorldError("torchrun started ranks on several hosts; use mpiexec or srun there")
        self.rank, self.size, self.fault_tolerant = launched.rank, launched.size, False
        self.failed = frozenset()
        self.threads = False
        self.dismissed, self.left = False, set()
        self._parent = os.getppid()
        self._turn = threading.Lock()
        self._ways: dict[int, _Way] = {}
        """The connection for messages to each rank, by rank; its own messages may arrive on another
        connection."""
        self._processes: dict[int, str] = {}
        """The process of each rank that was heard or reached, by rank."""
        self._late: dict[int, deque[memoryview]] = {}
        """Messages to ranks that do not listen yet, by rank."""
        self._arrived: deque[Received] = deque()
        """Messages that `receive` has not returned yet."""
        self._folder = _socket_folder(run_id)
        if self.rank == 0:
            clear_dead_folders(self._folder)
            _allow_files(self.size + OTHER_FILES)
        for path in (self._path(self.rank), self._left(self.rank)):  # of a run that was killed
            path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.setblocking(False)
        try:
            self._listening.bind(str(self._path(self.rank)))
        except OSError as error:  # a path of more than 107 characters: unix(7)
            self._listening.close()
            raise WorldError(f"{self._path(self.rank)}: {error}; set TMPDIR to a shorter path") from None
        self._listening.listen(self.size)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)

    def library(self) -> str:
        return ""

    def send(self, rank: int, tag: int, data: bytes) -> None:
        assert len(data) <= MOST_BYTES, f"a message of {len(data)} bytes"
        message = memoryview(HEAD.pack(len(data), self.rank, tag) + data)
        with self._turn:
            way = self._ways.get(rank)
            if way is None:
                self._late.setdefault(rank, deque()).append(message)
                self._reach(rank)
            else:
                way.leaving.append(message)
                self._push(way)

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

    def abandon(self) -> None:
        """Removes this rank's socket, and the folder if no other rank listens there any more."""
        self._path(self.rank).unlink(missing_ok=True)
        _clear_if_dead(self._folder)

    def finalize(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        with contextlib.suppress(FileNotFoundError):  # the master has cleared the folder
            self._path(self.rank).rename(self._left(self.rank))
        if self.rank == 0:
            for _ in range(CLEARED):
                shutil.rmtree(self._folder, ignore_errors=True)

    def _is_sending(self) -> bool:
        with self._turn:
            return bool(self._late) or any(way.leaving for way in self._ways.values())

    def _wait(self, seconds: float, beside: Waited | None) -> bool:
        """Waits at most `seconds` for events and handles them; returns whether `beside` can be read."""
        if beside is not None:
            self._selector.register(beside, selectors.EVENT_READ)
        try:
            events = self._selector.select(min(seconds, AGAIN_SECONDS) if self._late else seconds)
        finally:
            if beside is not None:
                self._selector.unregister(beside)
        with self._turn:
            for rank in list(self._late):
                self._reach(rank)
            for key, happened in events:
                if key.fileobj is self._listening:
                    self._accept()
                elif isinstance(key.data, _Way):
                    if happened & selectors.EVENT_READ:
                        self._pull(key.data)
                    if happened & selectors.EVENT_WRITE:
                        self._push(key.data)
        return any(key.fileobj is beside for key, _ in events)

    def _reach(self, rank: int) -> None:
        """Connects to a rank and sends its waiting messages, unless it does not listen yet, or has left."""
        own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        own.setblocking(False)
        try:
            own.connect(str(self._path(rank)))
            process = peer(own)
        except (BlockingIOError, FileNotFoundError, ConnectionRefusedError):
            own.close()
            if self._left(rank).exists():
                del self._late[rank]
            return
        except NotOurs as error:
            raise WorldError(f"{self._path(rank)}: {error}; set TMPDIR to a folder of your own") from None
        way = self._ways[rank] = _Way(own, process, rank, self._late.pop(rank))
        self._processes[rank] = process
        self._selector.register(own, selectors.EVENT_READ, way)
        self._push(way)

    def _accept(self) -> None:
        """Accepts all waiting connections, but for those of other users."""
        while True:
            try:
                other, _ = self._listening.accept()
            except BlockingIOError:
                return
            try:
                way = _Way(other, peer(other))
            except NotOurs as error:
                log.error("rank %d refused a connection: %s", self.rank, error)
                other.close()
                continue
            other.setblocking(False)
            self._selector.register(other, selectors.EVENT_READ, way)

    def _pull(self, way: _Way) -> None:
        """Reads what has arrived on a connection, and closes it if the other end has, or speaks as no
        rank."""
        if way.socket.fileno() < 0:
            return
        try:
            data = way.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._note_death(way)
            self._drop(way)
            return
        way.coming += data
        begin = 0
        while len(way.coming) - begin >= HEAD.size:
            length, source, tag = HEAD.unpack_from(way.coming, begin)
            if fault := self._fault(way, length, source):
                log.error("rank %d closed the connection of %s: %s", self.rank, way.process, fault)
                self._ways = {rank: each for rank, each in self._ways.items() if each is not way}
                self._drop(way)
                return
            end = begin + HEAD.size + length
            if len(way.coming) < end:
                break
            way.rank = source
            self._arrived.append(Received(source, tag, bytes(way.coming[begin + HEAD.size : end])))
            if source not in self._late:
                self._ways.setdefault(source, way)
            begin = end
        del way.coming[:begin]

    def _fault(self, way: _Way, length: int, source: int) -> str:
        """What is wrong with the header of a message; empty if nothing is."""
        if source >= self.size or source == self.rank:
            return f"it sent a message of rank {source}, which is no other rank of these {self.size}"
        if (process := self._processes.setdefault(source, way.process)) != way.process:
            return f"it sent a message of rank {source}, which is {process}"
        return f"it sent a message of {length} bytes; the limit is {MOST_BYTES}" * (length > MOST_BYTES)

    def _push(self, way: _Way) -> None:
        """Sends as much as the other rank has room for. The selector reports when there is room for the
        rest."""
        if way.socket.fileno() < 0:
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
        except ConnectionError:  # the connection stays open, because messages of the other rank may be unread
            way.leaving.clear()
        if self._selector.get_key(way.socket).events != events:
            self._selector.modify(way.socket, events, way)

    def _note_death(self, way: _Way) -> None:
        """On the master, notes that a rank has closed its connection without having been asked to quit. The
        other ranks need not know: they end with the master."""
        if self.rank == 0 and way.rank is not None and not (self.dismissed or self._left(way.rank).exists()):
            self.failed |= {way.rank}

    def _drop(self, way: _Way) -> None:
        """Closes a connection after the other rank has left or died; messages to it are dropped."""
        self._selector.unregister(way.socket)
        way.socket.close()
        way.leaving.clear()

    def _path(self, rank: int) -> Path:
        return self._folder / str(rank)

    def _left(self, rank: int) -> Path:
        """Path to which a rank's socket is renamed when the rank has left."""
        return self._folder / f"{rank}.left"


def _socket_folder(run_id: str) -> Path:
    """The folder of a run's sockets, the same for all of its ranks; it is created if it does not exist.

    Raises WorldError if it cannot be created, or if other users could enter it.
    """
    # Without --standalone the id of every run is "none"; two runs on a host differ by the port.
    run = _short(f"{run_id}\0{variables.word(os.environ, 'MASTER_PORT')}", 12)
    folder = Path(tempfile.gettempdir()) / f"{_prefix()}{run}"
    try:
        return make_private(folder)
    except NotOurs as error:
        raise WorldError(f"{error}; set TMPDIR to a folder of your own") from None
    except OSError as error:
        raise WorldError(f"{folder}: {error.strerror}; set TMPDIR to a folder of your own") from None


def _prefix() -> str:
    """How the folders of this user and host begin: TMPDIR may be shared by hosts, and a socket of another
    host looks dead."""
    return f"aiperf-hpc-{os.getuid()}-{_short(os.uname().nodename, 6)}-"


def _short(text: str, digits: int) -> str:
    return sha256(text.encode(errors="surrogateescape")).hexdigest()[:digits]


def clear_dead_folders(own: Path) -> None:
    """Removes what earlier runs of this user on this host have left next to the folder `own`, because all of
    their ranks were killed."""
    for folder in own.parent.glob(f"{_prefix()}*"):
        with contextlib.suppress(OSError):  # another run removes it too
            state = folder.lstat()
            old = time.time() - state.st_mtime > YOUNG_SECONDS
            if folder != own and old and stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid():
                _clear_if_dead(folder)


def _clear_if_dead(folder: Path) -> None:
    """Removes a folder in which there are only sockets, and nobody listens at any of them."""
    with contextlib.suppress(OSError):  # another rank removes it too
        found = list(folder.iterdir())
        if all(map(_is_dead, found)):
            for path in found:
                path.unlink()
            folder.rmdir()


def _is_dead(path: Path) -> bool:
    """Whether a file is a socket at which nobody listens."""
    if not stat.S_ISSOCK(path.lstat().st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:  # it is alive, and many others connect to it
            return False
    return False


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
