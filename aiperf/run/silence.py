"""Who has been silent for too long, without a look at everybody.

Most deadlines are put off again and again. Each has one entry in a heap, which is looked at when it is due.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from math import inf

DEAF_SECONDS = 1.0
"""Between two looks at who is silent, which usually are a quarter of a second apart. If it was longer, this
process was held up, as by a file system that stalls: what it did not hear meanwhile is no group's silence."""


class Listening:
    """A clock that stands still while this process is held up."""

    def __init__(self) -> None:
        self._looked = self._held_up = 0.0

    def at(self, now: float) -> float:
        """On this clock [s]: the time `now`, as if nobody had been held up since the last look."""
        return now - self._held_up

    def look(self, now: float) -> float:
        """To be called all the time: this clock's time [s]."""
        deaf, self._looked = now - self._looked, now
        if deaf > DEAF_SECONDS:
            self._held_up += deaf
        return now - self._held_up


class Deadlines:
    """One of each group, which may change at any time."""

    def __init__(self, due: Callable[[int], float]) -> None:
        """`due`: of a group, as it is now; infinite for none."""
        self._due = due
        self._heap: list[tuple[float, int]] = []
        self._noted: dict[int, float] = {}
        """Of each group the entry that counts: no later than its deadline. Other entries are old ones."""

    def note(self, index: int) -> None:
        """To be called when a deadline was set, or came nearer. One that was put off is seen by `passed`."""
        due = self._due(index)
        if due < self._noted.get(index, inf):
            self._noted[index] = due
            heapq.heappush(self._heap, (due, index))

    def passed(self, now: float) -> list[int]:
        """Those whose deadline is over. They are named once."""
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
