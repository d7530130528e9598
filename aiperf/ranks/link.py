"""Messages between ranks over MPI, as bytes, never as pickle. Nothing here waits inside MPI, whose waiting
calls spin and would take a core from training.

mpi4py is an extra and is imported where it is used. Its wheel supports all MPI libraries and uses the one
that is installed, so it need not be rebuilt for a site's own MPI.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from aiperf.errors import WorldError, installation
from nas.frozen import frozen

if TYPE_CHECKING:
    from mpi4py import MPI

SHORTEST_SLEEP, LONGEST_SLEEP, LONGER = 0.0001, 0.0025, 1.3
"""Time in seconds between two polls for a message: short after a message, because an answer often follows at
once, then growing by the factor LONGER. At the longest, 400 polls per second take about a hundredth of a
core."""
TESTED = 32
"""Number of requests that are tested per poll, so that its cost does not grow with the number in flight."""


class Waited(Protocol):
    """Something with a file descriptor that can be waited for together with messages."""

    def fileno(self) -> int: ...


@frozen
class Received:
    """A message of another rank."""

    source: int
    """The rank that sent it."""
    tag: int
    """The incarnation of the group that it belongs to."""
    data: bytes


class Link:
    """Connection of one rank to all others. It may be used from several threads, which take turns."""

    launcher = "mpiexec, or its daemon on this host,"
    """The process that started the ranks, in words."""

    def __init__(self, comm: MPI.Comm, fault_tolerant: bool) -> None:
        self.comm, self.fault_tolerant = comm, fault_tolerant
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.failed: frozenset[int] = frozenset()
        """Ranks that are known to be dead; only a fault-tolerant MPI reports them."""
        self._parent = os.getppid()
        self.threads: bool = mpi_module().Query_thread() == mpi_module().THREAD_MULTIPLE
        """Whether libraries may call MPI from threads of their own."""
        self.dismissed = False
        """Whether the other ranks were asked to quit."""
        self.left: set[int] = set()
        """Ranks that have sent Bye."""
        self._pending: deque[tuple[Any, bytes]] = deque()
        """Requests of messages in flight, with their bytes, which MPI reads until they have left."""
        self._turn = threading.Lock()

    @property
    def orphaned(self) -> bool:
        """Whether the launcher, or its daemon on this host, is gone."""
        return os.getppid() != self._parent

    def library(self) -> str:
        """The MPI library and its version, as "Open MPI v5.0.11"; empty if none is used."""
        return mpi_library()

    def send(self, rank: int, tag: int, data: bytes) -> None:
        """Starts to send a message and returns at once; it makes progress while `receive` is called. A
        message to a dead rank is dropped."""
        if rank in self.failed:
            return
        with self._turn:
            try:
                self._pending.append((self.comm.Isend([data, len(data), mpi_module().BYTE], rank, tag), data))
            except mpi_module().Exception as error:
                self._take_note(error)

    def receive(self, seconds: float, beside: Waited | None = None) -> Received | None:
        """The next message of any rank, or None if none arrives within `seconds`, a rank dies, or `beside`
        can be read.

        Raises WorldError if MPI fails and is not fault-tolerant.
        """
        until, sleep, dead = time.monotonic() + seconds, SHORTEST_SLEEP, self.failed
        others = [] if beside is None else [beside]
        while True:
            with self._turn:
                received = self._look()
            if received is not None or self.failed != dead:
                return received
            left = until - time.monotonic()
            if select.select(others, (), (), max(0.0, min(sleep, left)))[0] or left <= 0:
                return None
            sleep = min(LONGER * sleep, LONGEST_SLEEP)

    def flush(self, seconds: float) -> bool:
        """Waits at most `seconds` until all messages have left; returns whether they have."""
        until = time.monotonic() + seconds
        while self._pending and time.monotonic() < until:
            with self._turn:
                progress = self._progress()
            if not progress:
                time.sleep(SHORTEST_SLEEP)
        return not self._pending

    def abort(self, code: int) -> None:
        """Ends all ranks."""
        self.comm.Abort(code)

    def abandon(self) -> None:
        """Removes what this rank would leave behind if it ended now, without the others."""

    def finalize(self) -> None:
        """Ends MPI; all ranks that are alive must call it."""
        mpi_module().Finalize()

    def _look(self) -> Received | None:
        """The next message, if one has arrived."""
        mpi = mpi_module()
        self._progress()
        try:
            status = mpi.Status()
            any_message = (mpi.ANY_SOURCE, mpi.ANY_TAG, status)
            # Open MPI's Iprobe checks for messages before it makes progress, so only a second call finds one
            # that has just arrived.
            if not (self.comm.Iprobe(*any_message) or self.comm.Iprobe(*any_message)):
                return None
            source, tag, size = status.Get_source(), status.Get_tag(), status.Get_count(mpi.BYTE)
            buffer = bytearray(size)
            self.comm.Recv([buffer, size, mpi.BYTE], source, tag)
            return Received(source, tag, bytes(buffer))
        except mpi.Exception as error:
            self._take_note(error)
            return None

    def _progress(self) -> bool:
        """Tests some of the pending requests; returns whether any is complete."""
        before = len(self._pending)
        for _ in range(min(before, TESTED)):
            request, data = self._pending.popleft()
            try:
                if not request.Test():
                    self._pending.append((request, data))  # the others have their turn first
            except mpi_module().Exception as error:
                self._take_note(error)
        return len(self._pending) < before

    def _take_note(self, error: Exception) -> None:
        """Finds out which ranks died. Raises WorldError if MPI is not fault-tolerant and cannot say."""
        if not self.fault_tolerant:
            raise WorldError(
                f"MPI failed ({error}); without fault tolerance the remaining ranks cannot continue: resume "
                f"the run"
            ) from None
        self.comm.Ack_failed(self.size)
        group, world = self.comm.Get_failed(), self.comm.Get_group()
        ranks = mpi_module().Group.Translate_ranks(group, list(range(group.size)), world)
        self.failed = frozenset(ranks)


def mpi_library() -> str:
    """Name and version of the MPI library (MPI_Get_library_version), without the package and dates that
    follow."""
    words: str = mpi_module().Get_library_version()
    return " ".join(words.splitlines()[0].split(",")[0].strip("\0").split())


@cache
def mpi_module() -> Any:
    """The MPI module of mpi4py, set up so that importing it neither initialises nor finalises MPI."""
    try:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: no libmpi
        raise WorldError(
            f"several ranks need MPI ({error}); {installation('mpi')}, and load the "
            "site's MPI module if there is one"
        ) from None
    return MPI
