"""The master's way to its groups, and how the processes of a run come to be.

`World` is what the master knows. Here stands the world of one machine without MPI: one group of one
rank, in a child process, so that a crash of a trial never takes the master with it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aiperf.pretending.assumptions import Assumptions
from aiperf.ranks.worker import worker_at
from aiperf.wire.layout import Place
from aiperf.wire.messages import FromGroup, Quit, ToGroup, pack, unpack

ALONE = Place(rank=1, group=(1,), device_index=0, ranks_on_host=1)


@dataclass(frozen=True)
class Gone:
    """A group that will say nothing more, unless it is started again."""

    reason: str


class World(Protocol):
    """Groups of ranks, numbered from 0, and messages to and from them."""

    groups: tuple[tuple[int, ...], ...]
    """The ranks of each group. The master is not a rank of any."""

    def send(self, group: int, message: ToGroup) -> None:
        """To every rank of the group. Never waits. A message to a group that is gone is dropped;
        `receive` reports the loss."""

    def send_all(self, message: ToGroup) -> None:
        """To every rank of every group, as `send`. A group that is started again later does not hear it.
        What is sent to a group afterwards comes after it; it may come before what was sent to one earlier."""

    def receive(self, seconds: float) -> tuple[int, FromGroup | Gone] | None:
        """The next message of any rank of any group, or None when none comes in so many seconds.

        Nothing that was said before a group was started again is heard after it.
        Raises WorldError when the world as a whole cannot go on.
        """

    def restart(self, group: int) -> bool:
        """Starts a group again, whatever became of its processes. False where that cannot be done."""

    def close(self) -> None:
        """Ends all groups."""


class LocalWorld:
    """One worker in a child process, or one that pretends."""

    def __init__(self, log: Path, device: str, pretend: Assumptions | None = None) -> None:
        """`log` takes what the worker prints; `device` is the kind it binds."""
        self.groups: tuple[tuple[int, ...], ...] = ((1,),)
        self._log, self._device, self._pretend, self._gone = log, device, pretend, False
        self._start()

    def send(self, group: int, message: ToGroup) -> None:
        self._worker.send(pack(message))

    def send_all(self, message: ToGroup) -> None:
        self.send(0, message)

    def receive(self, seconds: float) -> tuple[int, FromGroup | Gone] | None:
        if self._gone:
            time.sleep(seconds)
            return None
        try:
            data = self._worker.receive(seconds)
        except EOFError:
            self._gone = True
            return 0, Gone(self._worker.obituary())
        return None if data is None else (0, unpack(FromGroup, data))

    def restart(self, group: int) -> bool:
        self._worker.kill()
        self._start()
        return True

    def close(self) -> None:
        self.send(0, Quit())
        self._worker.end()

    def _start(self) -> None:
        self._worker = worker_at(ALONE, self._device, self._log, self._pretend)
        self._gone = False
