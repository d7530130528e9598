"""Asynchronous regularised evolution: the better of a few random ones, and nobody lives for ever.

Real et al., "Regularized Evolution for Image Classifier Architecture Search", AAAI 2019.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from nas.search.curve import extrapolate
from nas.search.search import Search
from nas.search.trials import Living

LARGEST_TOURNAMENT = 25


class Evolution(Search):
    """The parent is the best of a tournament among the living."""

    @property
    def tournament(self) -> int:
        return min(max(2, self.population // 5), LARGEST_TOURNAMENT)

    def choose(self, rng: random.Random, living: Sequence[Living]) -> Living:
        """Errors are compared at the shortest schedule, lest those that train longer win by that."""
        rivals = rng.sample(living, min(self.tournament, len(living)))
        examples = min(rival.observation.schedule for rival in rivals)
        return min(rivals, key=lambda rival: rival.observation.error_within(examples))


class Foresight(Evolution):
    """As `Evolution`, but errors are compared at the longest schedule: as observed there, or else as a law
    fitted to the validation curve predicts, plus one standard deviation, so that an uncertain estimate does
    not win."""

    libraries = ("numpy",)  # the fit

    def choose(self, rng: random.Random, living: Sequence[Living]) -> Living:
        rivals = rng.sample(living, min(self.tournament, len(living)))
        examples = max(rival.observation.schedule for rival in rivals)
        return min(rivals, key=lambda rival: _foreseen(rival, examples))


def _foreseen(rival: Living, examples: int) -> float:
    estimate = extrapolate(rival.observation.errors, examples)
    return estimate.error + estimate.deviation
