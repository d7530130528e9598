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
    def unbounded(self) -> float:
        """The same, but above 1 where it can be: of two trials of one search, the smaller is the better."""
        return self.error

    @property
    def floor(self) -> float:
        """What an error of 0 counts as: so many examples cannot show a smaller one."""
        raise NotImplementedError

    @property
    def asked(self) -> tuple[int, ...]:
        """How much was asked, whatever the answers are: the examples, and what is counted of each."""
        return (self.of,)

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


UNIT = 1 << 20
"""Of a bit: what a byte's −log2 p is rounded to, once, so that sums are exact."""
MOST_BITS = 64
"""Of one byte: what a probability of 0 counts as."""
BITS_OF_A_BYTE = 8


@dataclass(frozen=True)
class Predicted(Tally):
    """Bytes of text, and how improbable each was: the error is the bits per byte, of eight."""

    __slots__ = ("bytes", "units")
    units: int
    """Sum of −log2 p over all bytes, in 2^−20 bit."""
    bytes: int
    """Predicted, over all examples."""

    @property
    def bits_per_byte(self) -> float:
        """Of nothing, nothing is known."""
        return self.units / UNIT / self.bytes if self.bytes else float(BITS_OF_A_BYTE)

    @property
    def error(self) -> float:
        return min(1.0, self.unbounded)

    @property
    def unbounded(self) -> float:
        return self.bits_per_byte / BITS_OF_A_BYTE

    @property
    def floor(self) -> float:
        """Half a bit over all bytes."""
        return 1 / (2 * BITS_OF_A_BYTE * max(1, self.bytes))

    @property
    def asked(self) -> tuple[int, ...]:
        return self.of, self.bytes

    @property
    def is_possible(self) -> bool:
        return 0 <= self.of <= self.bytes and 0 <= self.units <= MOST_BITS * UNIT * self.bytes

    def agrees(self, recorded: Tally) -> bool:
        """Bits may differ by 0.2 %: products in 16 bits round by more than that, and seldom to one side."""
        if not isinstance(recorded, Predicted) or recorded.asked != self.asked:
            return False
        return abs(self.units - recorded.units) <= TOLERATED_SHARE * max(self.units, recorded.units)

    def text(self) -> str:
        return f"{self.bits_per_byte:.4f} bits per byte, of {self.bytes:,} bytes"


TOLERATED_SHARE = 0.002
KINDS: tuple[type[Tally], ...] = (Classified, Predicted)


def tally_of(numbers: Mapping[str, Any]) -> Tally:
    """The kind that has these numbers, by name. Raises ValueError where none has."""
    for kind in KINDS:
        if numbers.keys() == {field.name for field in fields(kind)}:
            return kind(**numbers)
    raise ValueError(f"its keys are {', '.join(numbers) or 'none'}"[:200])
