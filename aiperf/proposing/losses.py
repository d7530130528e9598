"""What a tuner receives of a trial, so that trials early and late, long and short can be compared."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from dataclasses import dataclass
from math import log

ALL_WRONG = 1.0
"""The error of a trial that failed: a rate too high fails, and that is to be learnt."""


@dataclass(frozen=True)
class TrialOutcome:
    """What a trial came to."""

    error: float
    epochs: int


class Losses:
    """Of the trials of a run, in the order in which they ended."""

    def __init__(self, least: float) -> None:
        self._least = least  # no error is known to be less
        self._first: float | None = None  # error to complete: the seed's, if nothing went wrong
        self._changes: defaultdict[tuple[int, int], list[float]] = defaultdict(list)

    def completed(self, trial: TrialOutcome, parent: TrialOutcome | None) -> float:
        """The loss of a trial, to which later ones are compared."""
        self._first = trial.error if self._first is None else self._first
        loss = self.of(trial, parent)
        insort(self._like(trial, parent), self._change(trial, parent))
        return loss

    def of(self, trial: TrialOutcome, parent: TrialOutcome | None) -> float:
        """How much less it improved than trials of its length usually do."""
        before = self._like(trial, parent)
        usual = (before[(len(before) - 1) // 2] + before[len(before) // 2]) / 2 if before else 0.0
        return self._change(trial, parent) - usual

    def _change(self, trial: TrialOutcome, parent: TrialOutcome | None) -> float:
        """Against its parent, or else the first that completed: of trials that carry weights the later ones
        are better anyway. Before anything completed, failures are as bad as can be."""
        reference = (parent.error if parent else self._first) or 0.0
        return log(max(trial.error, self._least) / max(reference, self._least))

    def _like(self, trial: TrialOutcome, parent: TrialOutcome | None) -> list[float]:
        """The changes of those that completed before it, as long as it, of parents as long as its own: a
        long trial after a short one is better anyway, too."""
        return self._changes[parent.epochs if parent else 0, trial.epochs]
