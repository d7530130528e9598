"""What a network made of examples that it was not trained on: exact sums, whatever the ranks and their order.

Each kind of task has its own. The search, the score and the rules ask for the error alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any, TypeVar

T = TypeVar("T", bound="Tally")


@dataclass(frozen=True)
class Tally:
    """Whole numbers only, so that sums are exact and equal in every order."""

    # A long run has a million of them. (`slots=True` makes a second class, and a record names its class.)
    __slots__ = ("of",)
    of: int
    """Examples."""

    @property
    def error(self) -> float:
        """From 0 to 1; what the search makes small."""
        raise NotImplementedError

    @property
    def floor(self) -> float:
        """What an error of 0 counts as: so many examples cannot show a smaller one."""
        raise NotImplementedError

    @property
    def is_possible(self) -> bool:
        """Whether examples can have this tally."""
        raise NotImplementedError

    def agrees(self, recorded: Tally) -> bool:
        """Whether another device or thread count, which adds in another order, may find what is recorded."""
        raise NotImplementedError

    def text(self) -> str:
        """The sums in words."""
        raise NotImplementedError

    @classmethod
    def nothing(cls: type[T]) -> T:
        """Of no example."""
        return cls(*[0] * len(fields(cls)))

    @property
    def numbers(self) -> tuple[int, ...]:
        return astuple(self)

    def __add__(self: T, other: Tally) -> T:
        if type(other) is not type(self):
            raise TypeError(f"{self} and {other} are of two tasks")
        return type(self)(*map(sum, zip(self.numbers, other.numbers)))


@dataclass(frozen=True)
class Classified(Tally):
    """Right and wrong answers: the error is the share of wrong ones (top-1)."""

    __slots__ = ("correct",)
    correct: int

    @property
    def wrong(self) -> int:
        return self.of - self.correct

    @property
    def error(self) -> float:
        """Of nothing, nothing is right."""
        return self.wrong / self.of if self.of else 1.0

    @property
    def accuracy(self) -> float:
        return self.correct / self.of if self.of else 0.0

    @property
    def floor(self) -> float:
        """Half an example."""
        return 1 / (2 * max(1, self.of))

    @property
    def is_possible(self) -> bool:
        return 0 <= self.correct <= self.of

    def agrees(self, recorded: Tally) -> bool:
        """One example, or 0.2 % of them, may lie on the fence."""
        if not isinstance(recorded, Classified) or recorded.of != self.of:
            return False
        return abs(self.correct - recorded.correct) <= max(1, TOLERATED_SHARE * self.of)

    def text(self) -> str:
        return f"{self.wrong:,} of {self.of:,} wrong"


TOLERATED_SHARE = 0.002
KINDS: tuple[type[Tally], ...] = (Classified,)


def tally_of(numbers: Mapping[str, Any]) -> Tally:
    """The kind that has these numbers, by name. Raises ValueError where none has."""
    for kind in KINDS:
        if numbers.keys() == {field.name for field in fields(kind)}:
            return kind(**numbers)
    raise ValueError(f"its keys are {', '.join(numbers) or 'none'}"[:200])
