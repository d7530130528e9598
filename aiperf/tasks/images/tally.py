"""What is counted of a classification: the right answers."""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.tally import TOLERATED_SHARE, Tally


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
    def logged_accuracy(self) -> float:
        return self.accuracy

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
