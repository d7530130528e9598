"""Where the time of a run comes from: the machine's clocks, or a simulation's."""

from __future__ import annotations

import time
from math import ceil
from typing import Protocol

MICROSECONDS = 1_000_000


class Clock(Protocol):
    """The clocks of the master's host."""

    def monotonic(self) -> float:
        """Seconds since some moment; never set back."""

    def wall(self) -> float:
        """Time of day, seconds since 1970."""


def moment(seconds: float) -> float:
    """A time as a journal writes it: to the microsecond. Moments stay in their order."""
    return round(seconds, 6)


def duration(seconds: float) -> float:
    """What work took, as a journal writes it: whole microseconds, no fewer than it took."""
    return ceil(seconds * MICROSECONDS) / MICROSECONDS


class SystemClock:
    """The machine's own."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()
