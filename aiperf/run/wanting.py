"""Which group is given the next trial."""

from __future__ import annotations


class Wanting:
    """Groups with room for a trial: those without any first, else whoever came first."""

    def __init__(self) -> None:
        self._idle: dict[int, None] = {}
        self._others: dict[int, None] = {}

    def __bool__(self) -> bool:
        return bool(self._idle or self._others)

    @property
    def idle(self) -> int | None:
        """The first of those without any trial."""
        return next(iter(self._idle), None)

    @property
    def first(self) -> int | None:
        return self.idle if self._idle else next(iter(self._others), None)

    def put(self, index: int, num_trials: int) -> None:
        """A group has room beside so many trials. It keeps its place."""
        come, gone = (self._others, self._idle) if num_trials else (self._idle, self._others)
        gone.pop(index, None)
        come[index] = None

    def remove(self, index: int) -> None:
        """It has no room."""
        self._idle.pop(index, None)
        self._others.pop(index, None)
