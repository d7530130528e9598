"""A worker that only pretends to train, as a thread of the process that speaks for it.

A process for each of 512 ranks would be 512 Python processes on one host. In comparison with a real worker, a
thread leaves out the child process, torch and devices, the reading of data, and the collectives of a group.
"""

from __future__ import annotations

import socket
import threading
import traceback
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path

from aiperf.errors import AiperfError
from aiperf.pretending.assumptions import Assumptions
from aiperf.training.pretending_worker import Dismissed, PretendingWorker
from aiperf.wire.layout import Place
from aiperf.wire.messages import Quit, Refused, ToGroup, pack, unpack
from aiperf.wire.reports import FromGroup

END_SECONDS = 10.0
"""Time in seconds for a thread to end: it waits only for the file system."""


class Pretender:
    """A pretending worker, which communicates through a pair of sockets as a process does."""

    def __init__(self, place: Place, assumptions: Assumptions, log: Path) -> None:
        """Starts the thread. An unexpected error is written to `log`."""
        self._place, self._log, self._fate = place, log, ""
        self._ours, self._theirs = Pipe()
        self._saying = threading.Lock()
        self._worker = PretendingWorker(place, assumptions, self._say)
        self._thread = threading.Thread(target=self._live, name="pretend", daemon=True)
        self._thread.start()

    def send(self, data: bytes) -> None:
        self._worker.hear(unpack(ToGroup, data))

    def fileno(self) -> int:
        return self._ours.fileno()

    def receive(self, seconds: float) -> bytes | None:
        try:
            return self._ours.recv_bytes() if self._ours.poll(seconds) else None
        except OSError:
            raise EOFError from None

    def obituary(self) -> str:
        return f"the pretending worker of rank {self._place.rank} ended; error: {self._fate}"

    def end(self) -> None:
        self._thread.join(END_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Asks the thread to end, because a thread cannot be killed; it notices this wherever it waits."""
        self._worker.take(Quit())
        self._ours.close()  # the thread may be waiting for room in the socket
        self._thread.join(END_SECONDS)

    def _say(self, message: FromGroup) -> None:
        with self._saying, suppress(OSError):  # the other end may be closed already
            self._theirs.send_bytes(pack(message))

    def _live(self) -> None:
        try:
            self._worker.serve()
        except Dismissed:
            self._fate = "it was asked to end"
        except AiperfError as error:
            self._fate = str(error)
            self._say(Refused(self._place.rank, socket.gethostname(), str(error)))
        except Exception as error:  # what would end a worker's process ends this thread
            self._fate = f"{type(error).__name__}: {error}"
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("a", encoding="utf-8") as file:
                file.write(traceback.format_exc())
        finally:
            self._theirs.close()
