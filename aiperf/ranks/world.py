"""The master's interface to its groups: all that it knows of the ranks."""

from __future__ import annotations

from typing import Protocol

from aiperf.wire.clocks import ClockReading
from aiperf.wire.layout import Place
from aiperf.wire.messages import ToGroup
from aiperf.wire.reports import FromGroup
from nas.frozen import frozen

ALONE = Place(rank=1, group=(1,), device_index=0, ranks_on_host=1)
"""The place of the one worker without a launcher."""


@frozen
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
