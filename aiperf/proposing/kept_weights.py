"""Which kept weights a child may still read, by counting, so that the cost of an end of a trial does not grow
with the length of the run."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container


class KeptWeights:
    """Tracks which weights are needed: those of living trials, those of the parents of trials in flight, and
    those that are being written.

    `living` is the search's: a trial lives from its completion until `search.population` others have
    completed.
    """

    def __init__(self, living: Container[int]) -> None:
        self._living = living
        self._lived: deque[int] = deque()  # in the order in which they die
        self._children: Counter[int] = Counter()  # in flight, by parent
        self._being_written: set[int] = set()
        self._left: dict[int, None] = {}  # trials that may have become unneeded since the last `unneeded`
        self._best: int | None = None

    def dispatched(self, number: int, parent: int | None, attempt: int) -> None:
        """An attempt at a trial is in flight. The first one adds a child to the parent."""
        self._being_written.add(number)
        if parent is not None and attempt == 1:
            self._children[parent] += 1

    def broken_off(self, number: int) -> None:
        """An attempt ended. The parent keeps this child, because a further attempt may read its weights."""
        self._being_written.discard(number)
        self._left[number] = None

    def ended(self, number: int, parent: int | None) -> list[int]:
        """A trial has ended for good, and the search has its result. Returns the trials whose weights no
        child will read any more."""
        unread = [number]
        if number in self._living:
            self._lived.append(number)
        while self._lived and self._lived[0] not in self._living:
            unread.append(self._lived.popleft())
        if parent is not None:
            self._children[parent] -= 1
            if not self._children[parent]:
                del self._children[parent]
                unread.append(parent)
        unread = [each for each in unread if not self._may_be_read(each)]
        self._left.update(dict.fromkeys(unread))
        return unread

    def unneeded(self, best: int | None) -> list[int]:
        """The trials whose weights became unneeded since the last call. The best network so far is always
        needed, because it is tested in the end."""
        if self._best is not None and best != self._best:
            self._left[self._best] = None
        left, self._left, self._best = self._left, {}, best
        return [each for each in left if each != best and not self._is_needed(each)]

    def _is_needed(self, number: int) -> bool:
        return number in self._being_written or self._may_be_read(number)

    def _may_be_read(self, number: int) -> bool:
        return number in self._living or number in self._children
