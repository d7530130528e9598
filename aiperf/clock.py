"""The clock of a run: the machine's own clocks, or a simulation's."""

from __future__ import annotations

import time
from math import ceil
from typing import Protocol

MICROSECONDS = 1_000_000


class Clock(Protocol):
    """The clocks of the master's host."""

    def monotonic(self) -> float:
        """Seconds since some moment; this clock is never set back."""

    def wall(self) -> float:
        """Time of day in seconds since 1970."""


def moment(seconds: float) -> float:
    """A time as the journal records it, rounded to microseconds. Rounding keeps the order of times."""
    return round(seconds, 6)


def duration(seconds: float) -> float:
    """A duration of work as the journal records it, rounded up to microseconds, so that recorded work is
    never faster than it was."""
    return ceil(seconds * MICROSECONDS) / MICROSECONDS


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()
