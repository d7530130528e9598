"""How long a process waits for other ranks, and what it prints about it if that takes long."""

from __future__ import annotations

import logging
import math
import time

log = logging.getLogger(__name__)

QUIET_SECONDS = 20.0
"""Time in seconds after which a wait is reported. The ranks of most runs have met by then."""


class Patience:
    """A wait of limited length, whose subject is printed once: somebody who sees nothing for minutes does not
    know what to repair."""

    def __init__(self, seconds: float) -> None:
        began = time.monotonic()
        self._until, self._report_at = began + seconds, began + QUIET_SECONDS

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._until

    def shorten(self, seconds: float) -> None:
        """Ends the wait in `seconds` at the latest."""
        self._until = min(self._until, time.monotonic() + seconds)

    def report(self, subject: str) -> None:
        """Prints the subject, once, after QUIET_SECONDS."""
        if (now := time.monotonic()) > self._report_at:
            self._report_at = math.inf
            log.warning("%s; waiting for %.0f s more at most", subject, max(0.0, self._until - now))
