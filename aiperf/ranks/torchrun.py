"""Messages between the ranks that torchrun started on one host, where no MPI is needed.

Each rank has a datagram socket in a folder that only its owner can enter; the kernel keeps their order
and loses none. When a rank dies, torchrun ends the others.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

from aiperf.errors import WorldError
from aiperf.ranks.launched import Launched
from aiperf.ranks.link import LONGEST_SLEEP, SHORTEST_SLEEP, Link, Received

LARGEST_BYTES = 4 << 20
"""Of one message; the kernel may allow less, net.core.wmem_max."""
HEADER = 16


class SocketLink(Link):
    """One rank's way to all others of its host."""

    def __init__(self, launched: Launched, run_id: str) -> None:
        """Raises WorldError where the ranks are on several hosts."""
        if int(os.environ.get("LOCAL_WORLD_SIZE", launched.size)) != launched.size:
            raise WorldError("torchrun started ranks on several hosts; there, start them by mpiexec or srun")
        self.rank, self.size, self.fault_tolerant = launched.rank, launched.size, False
        self.failed = frozenset()
        self.threads = False
        self.dismissed, self.left = False, set()
        self._parent = os.getppid()
        self._turn = threading.Lock()
        self._waiting: deque[tuple[int, bytes]] = deque()
        # Without --standalone every run is called "none"; two on a host have different ports.
        port = os.environ.get("MASTER_PORT", "")
        self._folder = Path(tempfile.gettempdir()) / f"aiperf-hpc-{os.getuid()}-{run_id}-{port}"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if self._folder.stat().st_uid != os.getuid():
            raise WorldError(f"{self._folder} belongs to another; set TMPDIR to a folder of your own")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST_BYTES)
        self._socket.setblocking(False)
        self._path(self.rank).unlink(missing_ok=True)
        try:
            self._socket.bind(str(self._path(self.rank)))
        except OSError as error:  # a path of more than 107 characters: unix(7)
            self._socket.close()
            raise WorldError(f"{self._path(self.rank)}: {error}; set TMPDIR to a shorter path") from None

    def library(self) -> str:
        return ""

    def send(self, rank: int, tag: int, data: bytes) -> None:
        if len(data) + HEADER > LARGEST_BYTES:
            raise WorldError(
                f"{len(data):,} bytes for rank {rank}: too long; start the ranks by mpiexec or srun"
            )
        header = self.rank.to_bytes(8, "big") + tag.to_bytes(8, "big")
        with self._turn:
            self._waiting.append((rank, header + data))
            self._progress()

    def receive(self, seconds: float) -> Received | None:
        until, sleep = time.monotonic() + seconds, SHORTEST_SLEEP
        while True:
            with self._turn:
                self._progress()
                received = self._look()
            if received is not None or time.monotonic() + sleep > until:
                return received
            time.sleep(sleep)
            sleep = min(2 * sleep, LONGEST_SLEEP)

    def flush(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self._waiting and time.monotonic() < until:
            with self._turn:
                self._progress()
            time.sleep(SHORTEST_SLEEP)
        return not self._waiting

    def abort(self, code: int) -> None:
        os._exit(code)

    def finalize(self) -> None:
        self._socket.close()
        self._path(self.rank).unlink(missing_ok=True)
        if self.rank == 0:  # the others may still be leaving
            for path in self._folder.iterdir():
                path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # should one have come back: it is empty but for a socket
                self._folder.rmdir()

    def _look(self) -> Received | None:
        try:
            data = self._socket.recv(LARGEST_BYTES)
        except BlockingIOError:
            return None
        return Received(int.from_bytes(data[:8], "big"), int.from_bytes(data[8:16], "big"), data[16:])

    def _progress(self) -> None:
        """What cannot go yet, because its rank is not there or has no room, waits; order is kept by rank."""
        still: deque[tuple[int, bytes]] = deque()
        held: set[int] = set()
        for rank, data in self._waiting:
            if rank not in held:
                try:
                    self._socket.sendto(data, str(self._path(rank)))
                    continue
                except (BlockingIOError, FileNotFoundError, ConnectionRefusedError):
                    held.add(rank)
                except OSError as error:
                    reason = f"{len(data):,} bytes for rank {rank}: {error.strerror}"
                    raise WorldError(f"{reason}; start the ranks by mpiexec or srun") from None
            still.append((rank, data))
        self._waiting = still

    def _path(self, rank: int) -> Path:
        return self._folder / str(rank)
