"""What is counted of a classification: the right answers."""

from __future__ import annotations

from math import exp, lgamma

from aiperf.tasks.tally import TOLERATED_SHARE, Tally
from nas.frozen import frozen

FIVE_SIGMA = 2.867e-7
"""The chance that a normal deviate is beyond five standard deviations, on one side."""


TOLERATED_SHARE_OF_WRONG = 0.1
"""By which an evaluation on another device may differ, relative to the wrong answers."""


@frozen
class Classified(Tally):
    """Right and wrong answers: the error is the share of wrong ones (top-1)."""

    __slots__ = ("correct",)
    correct: int

    @property
    def wrong(self) -> int:
        return self.of - self.correct

    @property
    def error(self) -> float:
        """The share of wrong answers; without examples it is 1, for nothing is right."""
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
        """Whether no more answers are right than were given."""
        return 0 <= self.correct <= self.of

    def agrees(self, recorded: Tally) -> bool:
        """One answer may differ, or 0.2 % of all, but no more than a tenth of the wrong ones: the score
        depends on these alone, and few examples lie near the boundary if few are wrong."""
        if not isinstance(recorded, Classified) or recorded.of != self.of:
            return False
        most_wrong = TOLERATED_SHARE_OF_WRONG * max(self.wrong, recorded.wrong)
        return abs(self.correct - recorded.correct) <= max(1, min(TOLERATED_SHARE * self.of, most_wrong))

    def too_good_after(self, validated: Tally) -> str:
        """Why a test is too good to be honest after this validation; empty if it is not."""
        if not isinstance(validated, Classified):
            return ""
        too_few = chance_of_so_few(self, validated) < FIVE_SIGMA
        return "better by more than five standard deviations" if too_few else ""

    def text(self) -> str:
        return f"{self.wrong:,} of {self.of:,} wrong"


def chance_of_so_few(tested: Classified, validated: Classified) -> float:
    """An upper bound on the probability of at most this many wrong answers in the test, given those in both.

    A network that was trained on neither part errs equally often in both. The number of its wrong answers
    that fall in the test then follows the hypergeometric distribution, whatever its error is (Fisher's exact
    test). This is exact for any number of examples, also for parts sampled from one set. Below the mean the
    probabilities fall at least geometrically, which bounds their sum.
    """
    wrong, missed = tested.wrong, validated.wrong
    if (
        min(wrong, missed, tested.correct, validated.correct) < 0
        or wrong * validated.of >= missed * tested.of
    ):
        return 1.0
    first = exp(
        _log_choose(tested.of, wrong)
        + _log_choose(validated.of, missed)
        - _log_choose(tested.of + validated.of, wrong + missed)
    )
    falling = wrong * (validated.of - missed) / ((tested.of - wrong + 1) * (missed + 1))
    return first / (1 - falling)


def _log_choose(total: int, chosen: int) -> float:
    """The logarithm of a binomial coefficient, whose own value would overflow."""
    return lgamma(total + 1) - lgamma(chosen + 1) - lgamma(total - chosen + 1)
