"""The master's way to its groups, and how the processes of a run come to be.

`World` is what the master knows. Here stands the world of one machine without MPI: one group of one
rank, in a child process, so that a crash of a trial never takes the master with it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

from aiperf.messages import FromGroup, Quit, ToGroup, pack, unpack

__all__ = ["Gone", "LocalWorld", "World"]

QUIT_SECONDS = 10.0  # for a worker to leave by itself


@dataclass(frozen=True)
class Gone:
    """A group that will say nothing more."""

    reason: str


class World(Protocol):
    """Groups of ranks, numbered from 0, and messages to and from them."""

    groups: tuple[tuple[int, ...], ...]
    """The ranks of each group. The master is no rank of any."""

    def send(self, group: int, message: ToGroup) -> None:
        """Never waits. A message to a group that is gone is dropped; `receive` tells of the loss."""

    def receive(self, seconds: float) -> tuple[int, FromGroup | Gone] | None:
        """The next message, or None when none comes in so many seconds."""

    def restart(self, group: int) -> bool:
        """Starts a lost group again. False where that cannot be done."""

    def close(self) -> None:
        """Ends all groups."""


class LocalWorld:
    """One worker in a child process, joined by a socket pair."""

    def __init__(self, log: Path, device: str) -> None:
        """`log` takes what the worker prints; `device` is the kind it binds."""
        self.groups: tuple[tuple[int, ...], ...] = ((1,),)
        self._log, self._device, self._gone = log, device, False
        self._start()

    def send(self, group: int, message: ToGroup) -> None:
        try:
            self._connection.send_bytes(pack(message))
        except OSError:
            pass  # the group is gone, which `receive` tells

    def receive(self, seconds: float) -> tuple[int, FromGroup | Gone] | None:
        if self._gone or not self._connection.poll(seconds):
            return None
        try:
            return 0, unpack(FromGroup, self._connection.recv_bytes())
        except (EOFError, OSError):
            self._gone = True
            return 0, Gone(self._obituary())

    def restart(self, group: int) -> bool:
        self._connection.close()
        self._start()
        return True

    def close(self) -> None:
        self.send(0, Quit())
        try:
            self._process.wait(QUIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._connection.close()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "aiperf.worker", "--socket", str(theirs.fileno())]
        command += ["--device", self._device]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        theirs.close()
        self._connection = Connection(ours.detach())
        self._gone = False

    def _obituary(self) -> str:
        code = self._process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"the worker (process {self._process.pid}) {how}; its last words: {_last_line(self._log)}"


def _last_line(log: Path) -> str:
    with open(log, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "none"

