"""The journal of a leg as it is written, with what follows from it line by line."""

from __future__ import annotations

from aiperf.clock import Clock, SystemClock, moment
from aiperf.journal.attempts import AFTER_LAST_LINE_SECONDS
from aiperf.journal.events import Ended, Event, LegBegan, Stalled
from aiperf.journal.notary import JournalHead
from aiperf.journal.replay import Replay
from aiperf.journal.writer import JournalWriter
from aiperf.proposing.jobs import Jobs

LOOK_SECONDS = 5.0
"""Time in seconds between two checks that the journal still exists. Each check is a request to the file
server, so it is not made for every line."""


class Ledger:
    """Writes each event to the journal and then passes it on to the replay and to the search, so that nothing
    can follow from an event that the journal does not hold.

    The clock of the leg starts with its ledger.
    """

    def __init__(
        self, journal: JournalWriter, replay: Replay, jobs: Jobs, clock: Clock | None = None
    ) -> None:
        """`clock` is the machine's own if it is None; a simulation has a virtual one."""
        self.journal, self.replay, self.jobs = journal, replay, jobs
        self.clock = clock or SystemClock()
        self._zero = self.clock.monotonic()
        self._written = self._looked = 0.0

    @property
    def now(self) -> float:
        """The leg's time in seconds."""
        return moment(self.clock.monotonic() - self._zero)

    @property
    def quiet_seconds(self) -> float:
        """Time in seconds since the last line was written."""
        return self.now - self._written

    @property
    def head(self) -> JournalHead:
        """The journal as it is now. It is what a notary signs."""
        return JournalHead(self.replay.lines, *self.journal.end)

    def write(self, event: Event, now: float | None = None) -> None:
        """Writes a line, at `now` or the current time of the leg. A `Stalled` line comes before it if the
        last line is older than a living master's can be. Raises JournalError if the journal cannot be
        written, or was removed or replaced."""
        now = self.now if now is None else now
        if now - self._written > AFTER_LAST_LINE_SECONDS and not isinstance(event, LegBegan):
            self._append(now, Stalled())
        # If the run directory was removed, weights cannot be written and trials fail. So it is checked
        # whenever a trial ends, and the run then ends with the true reason.
        if now > self._looked + LOOK_SECONDS or isinstance(event, Ended):
            self._looked = now
            self.journal.refuse_if_gone()
        self._append(now, event)

    def _append(self, now: float, event: Event) -> None:
        """The journal comes first: an error in writing must not leave an event in the replay that it
        lacks."""
        self._written = now
        self.journal.write(now, event)
        self.replay.add(now, event)
        self.jobs.follow(event)
