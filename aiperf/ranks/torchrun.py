"""Messages between the ranks that torchrun started on one host.

Each rank listens at a socket in a folder that only its owner can enter. Two ranks that exchange messages have
a connection. If a rank dies, the master notices it by the end of its connection, and closes the run in the
half minute after which torchrun kills the others. A process of another user, or one that does not speak as a
rank, is refused, and the run continues.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import selectors
import shutil
import socket
import stat
import struct
import tempfile
import time
from collections import deque
from hashlib import sha256
from pathlib import Path

from aiperf.errors import WorldError
from aiperf.host import variables
from aiperf.host.other_users import NotOurs, make_private, peer
from aiperf.ranks.launcher import LaunchedRank
from aiperf.ranks.link import Received
from aiperf.ranks.sockets import AGAIN_SECONDS, MOST_BYTES, NoRank, SocketLink, Way

log = logging.getLogger(__name__)

HEAD = struct.Struct("<QQQ")
"""Header of each message: its length, its source, its tag."""
YOUNG_SECONDS = 60.0
"""Time in seconds for the ranks of a run to begin to listen: until then its folder looks dead."""
CLEARED = 3
"""Number of attempts to remove the folder, because other ranks may still be leaving."""


class HostLink(SocketLink):
    """Connection of one rank to all others of its host."""

    launcher = "torchrun"

    def __init__(self, launched: LaunchedRank, run_id: str) -> None:
        """Opens the rank's socket."""
        super().__init__(launched)
        self._processes: dict[int, str] = {}
        """The process of each rank that was heard or reached, by rank."""
        self._late: dict[int, deque[memoryview]] = {}
        """Messages to ranks that do not listen yet, by rank."""
        self._folder = _socket_folder(run_id)
        if self.rank == 0:
            clear_dead_folders(self._folder)
        for path in (self._path(self.rank), self._left(self.rank)):  # of a run that was killed
            path.unlink(missing_ok=True)
        listening = self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.setblocking(False)
        try:
            listening.bind(str(self._path(self.rank)))
        except OSError as error:  # a path of more than 107 characters: unix(7)
            listening.close()
            raise WorldError(f"{self._path(self.rank)}: {error}; set TMPDIR to a shorter path") from None
        listening.listen(self.size)
        self._selector.register(listening, selectors.EVENT_READ)

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

    def abandon(self) -> None:
        """Removes this rank's socket, and the folder if no other rank listens there any more."""
        self._path(self.rank).unlink(missing_ok=True)
        _clear_if_dead(self._folder)

    def finalize(self) -> None:
        super().finalize()
        with contextlib.suppress(FileNotFoundError):  # the master has cleared the folder
            self._path(self.rank).rename(self._left(self.rank))
        if self.rank == 0:
            for _ in range(CLEARED):
                shutil.rmtree(self._folder, ignore_errors=True)

    def _is_waiting(self) -> bool:
        return bool(self._late)

    def _pause(self) -> float:
        return AGAIN_SECONDS if self._late else math.inf

    def _keep_up(self) -> None:
        for rank in list(self._late):
            self._reach(rank)

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
        way = self._ways[rank] = Way(own, process, rank, self._late.pop(rank))
        self._processes[rank] = process
        self._selector.register(own, selectors.EVENT_READ, way)
        self._push(way)

    def _accept(self) -> None:
        """Accepts all waiting connections, but for those of other users."""
        assert self._listening is not None
        while True:
            try:
                other, _ = self._listening.accept()
            except BlockingIOError:
                return
            try:
                way = Way(other, peer(other))
            except NotOurs as error:
                log.error("rank %d refused a connection: %s", self.rank, error)
                other.close()
                continue
            other.setblocking(False)
            self._selector.register(other, selectors.EVENT_READ, way)

    def _take(self, way: Way, begin: int) -> int | None:
        if len(way.coming) - begin < HEAD.size:
            return None
        length, source, tag = HEAD.unpack_from(way.coming, begin)
        if fault := self._fault(way, length, source):
            raise NoRank(fault)
        end: int = begin + HEAD.size + length
        if len(way.coming) < end:
            return None
        way.rank = source
        self._arrived.append(Received(source, tag, bytes(way.coming[begin + HEAD.size : end])))
        if source not in self._late:
            self._ways.setdefault(source, way)
        return end

    def _fault(self, way: Way, length: int, source: int) -> str:
        """What is wrong with the header of a message; empty if nothing is."""
        if source >= self.size or source == self.rank:
            return f"it sent a message of rank {source}, which is no other rank of these {self.size}"
        if (process := self._processes.setdefault(source, way.process)) != way.process:
            return f"it sent a message of rank {source}, which is {process}"
        return f"it sent a message of {length} bytes; the limit is {MOST_BYTES}" * (length > MOST_BYTES)

    def _refuse(self, way: Way, fault: str) -> None:
        log.error("rank %d closed the connection of %s: %s", self.rank, way.process, fault)
        self._ways = {rank: each for rank, each in self._ways.items() if each is not way}
        self._drop(way)

    def _note_end(self, way: Way) -> None:
        """On the master, notes that a rank has closed its connection without having been asked to quit. The
        other ranks need not know: they end with the master."""
        if self.rank == 0 and way.rank is not None and not (self.dismissed or self._left(way.rank).exists()):
            self.failed |= {way.rank}

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
