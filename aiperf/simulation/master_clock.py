"""The clock of the simulated master's host: it goes on while the master waits, and while it works.

For its work passes what is assumed for each message and each new candidate, or, where that is wanted, what
the processor of this machine really takes. What it takes is measured in both cases.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, field

from aiperf.pretending.assumptions import Messages

START_WALL_SECONDS = 946_684_800.0
"""The time of day at which every simulation begins, 2000-01-01 UTC: the same one each time."""

SAMPLED = 8
"""One of so many messages is timed on this processor: reading its clock takes a twentieth of a message."""


@dataclass
class MasterTime:
    """What the master did from the release to the deadline, and how long messages waited for it."""

    requests: int = 0
    busy_seconds: float = 0.0
    waited: array[float] = field(default_factory=lambda: array("d"))
    """Seconds of each message, from its arrival until the master took it."""
    hearing_seconds: float = 0.0
    """CPU time on this machine for the turns of the master that were timed and proposed nothing."""
    heard: int = 0
    """Messages in those turns."""
    proposing_seconds: float = 0.0
    """CPU time on this machine for the timed turns that proposed."""
    proposing_heard: int = 0
    proposed: int = 0
    """Candidates in those turns."""


class MasterClock:
    """A `Clock`. A turn of the master is from one message to the next."""

    def __init__(self, assumed: Messages, measures: bool) -> None:
        self.total = MasterTime()
        self.now = 0.0
        """When the turn began, or what passed since; seconds."""
        self._assumed, self._measures = assumed, measures
        self._span: tuple[float, float] | None = None
        self._timed, self._heard, self._proposed, self._messages = measures, 0, 0, 0
        self._mark = time.process_time()

    def monotonic(self) -> float:
        return self.now + (time.process_time() - self._mark if self._measures else 0.0)

    def wall(self) -> float:
        return START_WALL_SECONDS + self.monotonic()

    def begin_span(self, seconds: float | None) -> None:
        """The first time it is said; from here on the master's time is counted. None: without an end."""
        if self._span is None:
            now = self.monotonic()
            self._span = (now, float("inf") if seconds is None else now + seconds)

    def end_turn(self) -> None:
        """The master listens again."""
        if not self._timed:
            return
        took = time.process_time() - self._mark
        if self._measures:
            self._work(took)
        if self._in_span and self._proposed:
            self.total.proposing_seconds += took
            self.total.proposed += self._proposed
            self.total.proposing_heard += self._heard
        elif self._in_span and (self._heard or self._measures):
            self.total.hearing_seconds += took
            self.total.heard += self._heard

    def hear(self, arrived: float) -> None:
        """A turn begins, with a message that is there since then."""
        self.now = max(self.now, arrived)
        if self._in_span:
            self.total.requests += 1
            self.total.waited.append(self.now - arrived)
        if not self._measures:
            self._work(self._assumed.master_seconds)
        self._messages += 1
        self._begin_turn(self._measures or self._messages % SAMPLED == 0, heard=1)

    def hear_nothing(self, until: float) -> None:
        """A turn begins because the time is over."""
        self.now = until
        self._begin_turn(True, heard=0)  # it proposes when it has heard all there is

    def propose(self) -> None:
        """The master made a new candidate."""
        self._proposed += 1
        if not self._measures:
            self._work(self._assumed.proposal_seconds)

    @property
    def _in_span(self) -> bool:
        return self._span is not None and self._span[0] <= self.now <= self._span[1]

    def _work(self, seconds: float) -> None:
        if self._in_span:
            self.total.busy_seconds += seconds
        self.now += seconds

    def _begin_turn(self, timed: bool, heard: int) -> None:
        self._timed, self._heard, self._proposed = timed, heard, 0
        if timed:
            self._mark = time.process_time()
