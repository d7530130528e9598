"""What a network made of examples that it was not trained on: exact sums, whatever the ranks and their order.

Each task has a kind of its own (`tally.py` in its folder of `aiperf/tasks`). The search, the score and most
rules ask for the error alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, fields
from typing import Any, TypeVar

from nas.frozen import frozen

T = TypeVar("T", bound="Tally")

TOLERATED_SHARE = 0.002
"""By which an evaluation on another device may differ: it adds in another order, and rounds otherwise."""


@frozen
class Tally:
    """Whole numbers only, so that sums are exact and equal in every order."""

    # A long run has a million of them. (`slots=True` makes a second class, and a record names its class.)
    __slots__ = ("of",)
    of: int
    """Number of examples."""

    @property
    def error(self) -> float:
        """Error from 0 to 1, which the search makes small."""
        raise NotImplementedError

    @property
    def unbounded(self) -> float:
        """The same, but above 1 where it can be: of two trials of one search, the smaller is the better."""
        return self.error

    @property
    def floor(self) -> float:
        """What an error of 0 counts as in the score: this many examples cannot show a smaller one."""
        raise NotImplementedError

    @property
    def floor_text(self) -> str:
        """How `floor` is computed."""
        return f"1/(2 × {1 / (2 * self.floor):,.0f})"

    @property
    def logged_accuracy(self) -> float:
        """What logs in the form of MLPerf have under "eval_accuracy"."""
        return 1 - self.error

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

    def too_good_after(self, validated: Tally) -> str:
        """In which way a test with this tally shows that its examples were trained on, after such a best
        validation; empty if it does not. A tally of another kind, which is a contradiction elsewhere, shows
        nothing."""
        raise NotImplementedError

    @property
    def can_convict(self) -> bool:
        """Whether it has enough answers for `too_good_after` to be a proof, where the test is no easier."""
        return True

    def text(self) -> str:
        """The sums in words."""
        raise NotImplementedError

    @classmethod
    def nothing(cls: type[T]) -> T:
        """The tally of no example, to which others are added."""
        return cls(*[0] * len(fields(cls)))

    @property
    def numbers(self) -> tuple[int, ...]:
        return astuple(self)

    def __add__(self: T, other: Tally) -> T:
        if type(other) is not type(self):
            raise TypeError(f"{self} and {other} are of two tasks")
        return type(self)(*map(sum, zip(self.numbers, other.numbers)))


def kinds(of: type[Tally] = Tally) -> Iterator[type[Tally]]:
    """Every kind of tally whose task is imported. Each is recognised by the names of its numbers."""
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


def tally_of(numbers: Mapping[str, Any]) -> Tally:
    """The kind that has these numbers, by name. Raises ValueError where none has."""
    for kind in kinds():
        if numbers.keys() == {field.name for field in fields(kind)}:
            return kind(**numbers)
    raise ValueError(f"its keys are {', '.join(numbers) or 'none'}"[:200])
