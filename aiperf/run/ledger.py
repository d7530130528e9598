"""The journal of a leg as it is written, with what follows from it line by line."""

from __future__ import annotations

from aiperf.clock import Clock, SystemClock, moment
from aiperf.journal.attempts import AFTER_LAST_LINE_SECONDS
from aiperf.journal.events import Ended, Event, LegBegan, Stalled
from aiperf.journal.file import JournalWriter
from aiperf.journal.replay import Replay
from aiperf.proposing.jobs import Jobs

LOOK_SECONDS = 5.0
"""Between two looks at whether the journal is still there: a line of few bytes to a file server."""


class Ledger:
    """Each event goes to the journal first: nothing is known of a run that its journal does not hold.

    The clock of the leg begins with its ledger.
    """

    def __init__(
        self, journal: JournalWriter, replay: Replay, jobs: Jobs, clock: Clock | None = None
    ) -> None:
        """`clock`: the machine's own if it is None."""
        self.journal, self.replay, self.jobs = journal, replay, jobs
        self.clock = clock or SystemClock()
        self._zero = self.clock.monotonic()
        self._written = self._looked = 0.0

    @property
    def now(self) -> float:
        """The leg's time [s]."""
        return moment(self.clock.monotonic() - self._zero)

    @property
    def quiet_seconds(self) -> float:
        """Since the last line."""
        return self.now - self._written

    def write(self, event: Event, now: float | None = None) -> None:
        """Raises JournalError where it cannot be written, or the journal is no longer where the run's was."""
        now = self.now if now is None else now
        if now - self._written > AFTER_LAST_LINE_SECONDS and not isinstance(event, LegBegan):
            self._append(now, Stalled())
        # A trial whose weights found no directory did not fail: the run did.
        if now > self._looked + LOOK_SECONDS or isinstance(event, Ended):
            self._looked = now
            self.journal.refuse_if_gone()
        self._append(now, event)

    def _append(self, now: float, event: Event) -> None:
        self._written = now
        self.journal.write(now, event)
        self.replay.add(now, event)
        self.jobs.follow(event)
