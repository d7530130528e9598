"""The master's interface to its groups, and its implementation for one machine without MPI.

`World` is all that the master knows of the ranks. `LocalWorld` is one group of one rank, in a child process,
so that a crash of a trial never ends the master.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aiperf.pretending.assumptions import Assumptions
from aiperf.ranks.rank_worker import worker_at
from aiperf.wire.clocks import SAME_CLOCK, ClockReading
from aiperf.wire.layout import Place
from aiperf.wire.messages import FromGroup, Quit, ToGroup, pack, unpack

ALONE = Place(rank=1, group=(1,), device_index=0, ranks_on_host=1)


@dataclass(frozen=True)
class Gone:
    """News that a group has ended: it sends no further message unless it is restarted."""

    reason: str


class World(Protocol):
    """Groups of ranks, numbered from 0, and messages to and from them."""

    groups: tuple[tuple[int, ...], ...]
    """The ranks of each group. The master is not a rank of any."""

    def send(self, group: int, message: ToGroup) -> None:
        """Sends a message to every rank of the group, without waiting. A message to a group that has ended is
        dropped; `receive` reports the end."""

    def send_all(self, message: ToGroup) -> None:
        """Sends a message to every rank of every group, as `send`. A group that is restarted later does not
        receive it. Messages that are sent to a group later arrive after it; it may overtake earlier ones."""

    def receive(self, seconds: float) -> tuple[int, FromGroup | Gone] | None:
        """The next message of any rank and the index of its group, or None if none arrives within `seconds`.

        Messages that a group sent before it was restarted are never returned after the restart. Raises
        WorldError if the world as a whole cannot continue.
        """

    def clock_of(self, rank: int) -> ClockReading:
        """The clock of a rank's host compared with the master's, when the rank's last `Ready` was received.
        It is measured by then."""

    def restart(self, group: int) -> bool:
        """Starts the processes of a group anew, whatever state they are in. False if that is not possible."""

    def close(self) -> None:
        """Ends all groups."""


class LocalWorld:
    """One worker in a child process, or one that pretends, in a thread."""

    def __init__(self, log: Path, device: str, pretend: Assumptions | None = None) -> None:
        """The worker's output goes to `log`; `device` is the kind that it binds."""
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

    def clock_of(self, rank: int) -> ClockReading:
        return SAME_CLOCK

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
