"""Deadlines for the silence of groups, without a scan of all groups.

Most deadlines are postponed again and again. Each group has one valid entry in a heap, which is checked only
when it is due, so a message of a group costs no operation on the heap.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from math import inf

DEAF_SECONDS = 1.0
"""Time in seconds between two looks at the clock, usually a quarter of a second, beyond which this process
was held up, as by a file system that stalls. It received no messages meanwhile, so that time is no
silence."""


class Listening:
    """A clock that stops while this process is held up."""

    def __init__(self) -> None:
        self._looked = self._held_up = 0.0

    def at(self, now: float) -> float:
        """The time `now` on this clock in seconds, assuming no hold-up since the last look."""
        return now - self._held_up

    def look(self, now: float) -> float:
        """This clock's time in seconds. It must be called continually: a long pause counts as a hold-up."""
        deaf, self._looked = now - self._looked, now
        if deaf > DEAF_SECONDS:
            self._held_up += deaf
        return now - self._held_up


class Deadlines:
    """One deadline for each group, which may change at any time."""

    def __init__(self, due: Callable[[int], float]) -> None:
        """`due` returns the current deadline of a group; infinite if it has none."""
        self._due = due
        self._heap: list[tuple[float, int]] = []
        self._noted: dict[int, float] = {}
        """Time of the valid heap entry of each group, which is never later than its deadline. Other entries
        are stale and skipped."""

    def note(self, index: int) -> None:
        """Must be called if a deadline was set or became earlier. A postponed one is noticed by `passed`."""
        due = self._due(index)
        if due < self._noted.get(index, inf):
            self._noted[index] = due
            heapq.heappush(self._heap, (due, index))

    def passed(self, now: float) -> list[int]:
        """The groups whose deadline is over, each once."""
        found = []
        while self._heap and self._heap[0][0] < now:
            at, index = heapq.heappop(self._heap)
            if self._noted.get(index) == at:
                del self._noted[index]
                if self._due(index) < now:
                    found.append(index)
                else:
                    self.note(index)
        return sorted(found)
