"""The difference between the times of day of two hosts, by round trips: one process asks, the other answers.

A single message shows the difference only together with the time that it took, which may be half a minute if
a process was stopped, a network was cut or a file system stalled. In a round trip the other clock was read
between the question and the answer, both by one's own clock, so half of the time in between bounds the error,
whatever the delay was. The quickest of several round trips counts.
"""

from __future__ import annotations

from nas.frozen import frozen

ROUND_TRIPS = 3
"""Number of round trips to each rank."""
MOST_ROUND_TRIPS = 10
"""Number of round trips if none was quick enough to compare clocks."""
CLOCK_SECONDS = 1.0
"""Largest difference in seconds between the clocks of the hosts of a valid run, and the largest uncertainty
at which it can be told."""


@frozen
class ClockReading:
    """The difference between the clock of a host and one's own."""

    offset_seconds: float
    """The other time of day minus one's own, in seconds."""
    uncertainty_seconds: float
    """Largest possible error of the offset in seconds: half of the round trip."""

    @property
    def least_seconds(self) -> float:
        """Seconds by which the clocks differ at least, whatever the delay of the messages was."""
        return max(0.0, abs(self.offset_seconds) - self.uncertainty_seconds)

    @property
    def known(self) -> bool:
        """Whether the offset is known well enough to say that the clocks agree."""
        return 0.0 <= self.uncertainty_seconds <= CLOCK_SECONDS


SAME_CLOCK = ClockReading(0.0, 0.0)
"""The reading for a process of the same host, which reads the same clock."""


class RoundTrips:
    """The round trips to one rank, by the messages `AskTime` and `TimeOfDay`. Times are of the process that
    asks: `wall` is its time of day, `now` is its monotonic clock, both in seconds."""

    def __init__(self) -> None:
        self.best: ClockReading | None = None
        """The reading of the quickest round trip; None before any answer."""
        self._asked: list[tuple[float, float]] = []

    def ask(self, wall: float, now: float) -> int:
        """The number of the next request, from 1."""
        self._asked.append((wall, now))
        return len(self._asked)

    def hear(self, number: int, wall_seconds: float, now: float) -> None:
        """Takes the other process's time of day, in answer to the request with that number. It may be a late
        answer to an earlier request; one to no request counts for nothing."""
        if not 1 <= number <= len(self._asked):
            return
        wall, began = self._asked[number - 1]
        half = (now - began) / 2
        if self.best is None or half < self.best.uncertainty_seconds:
            self.best = ClockReading(wall_seconds - (wall + half), half)

    @property
    def enough(self) -> bool:
        """Whether no further request is needed after an answer: the offset is known, or further requests are
        in vain."""
        known = self.best is not None and self.best.known
        return len(self._asked) >= (ROUND_TRIPS if known else MOST_ROUND_TRIPS)
