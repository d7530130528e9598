"""The journal of a leg as it is written, with what follows from it line by line."""

from __future__ import annotations

import time

from aiperf.journal.events import Event
from aiperf.journal.file import JournalWriter
from aiperf.journal.replay import Replay
from aiperf.proposing.jobs import Jobs


class Ledger:
    """Each event goes to the journal first: nothing is known of a run that its journal does not hold.

    The clock of the leg begins with its ledger.
    """

    def __init__(self, journal: JournalWriter, replay: Replay, jobs: Jobs) -> None:
        self.journal, self.replay, self.jobs = journal, replay, jobs
        self._zero = time.monotonic()
        self._written = 0.0

    @property
    def now(self) -> float:
        """The leg's time [s]."""
        return time.monotonic() - self._zero

    @property
    def quiet_seconds(self) -> float:
        """Since the last line."""
        return self.now - self._written

    def write(self, event: Event, now: float | None = None) -> None:
        self._written = self.now if now is None else now
        self.journal.write(self._written, event)
        self.replay.add(self._written, event)
        self.jobs.follow(event)
