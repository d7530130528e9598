"""Asynchronous regularised evolution: the better of a few random ones, and nobody lives for ever.

Real et al., "Regularized Evolution for Image Classifier Architecture Search", AAAI 2019.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from nas.frozen import frozen
from nas.search.search import Search
from nas.search.trials import Living

LARGEST_TOURNAMENT = 25  # rivals, as for a population of 125

# Power laws fall by a factor of two for each factor of 2^(1/exponent) in examples: error = c + a·examples^-e
# (Domhan et al., "Speeding up automatic hyperparameter optimization of deep neural networks by
# extrapolation of learning curves", IJCAI 2015, whose pow3 this is).
EXPONENTS = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0)
LEAST_POINTS = 4  # one more than the law has parameters
LEAST_NOISE = 1e-3  # of a validation error: no curve is believed to be smoother


class Evolution(Search):
    """The parent is the best of a tournament among the living."""

    @property
    def tournament(self) -> int:
        """How many rivals: a fifth of the population, which keeps the pressure of selection about the
        same."""
        return min(max(2, self.population // 5), LARGEST_TOURNAMENT)

    def choose(self, rng: random.Random, living: Sequence[Living]) -> Living:
        """Errors are compared at the shortest schedule, lest those that train longer win by that."""
        rivals = rng.sample(living, min(self.tournament, len(living)))
        examples = min(rival.observation.schedule for rival in rivals)
        return min(rivals, key=lambda rival: rival.observation.error_within(examples))


class Final(Evolution):
    """As `Evolution`, but trials are compared by their best errors, however long they were trained: so the
    parents are those whose lineages were trained for longest, too."""

    def choose(self, rng: random.Random, living: Sequence[Living]) -> Living:
        rivals = rng.sample(living, min(self.tournament, len(living)))
        return min(rivals, key=lambda rival: rival.observation.error_within(rival.observation.schedule))


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
    """The estimated error and one standard deviation."""
    estimate = extrapolate(rival.observation.errors, examples)
    return estimate.error + estimate.deviation


@frozen
class Estimate:
    """An estimate of the error after a number of examples."""

    error: float
    deviation: float
    """Standard deviation of the error; 0 if it was observed."""


def extrapolate(curve: Sequence[tuple[int, float]], examples: int) -> Estimate:
    """A validation curve, carried on: what the error may be after more examples than were trained on. It is
    for the search alone, to choose parents, and is never told, stored or reported as an error.

    `curve`: training examples since the trial began, validation error (0 to 1); in order, not empty.

    Within the curve, and where it is too short to be fitted, it is the best error that was observed.
    Every exponent's law is fitted by least squares, held between 0 and the last error, and weighed by how
    well it fits; the deviation holds their disagreement and the noise about them.
    """
    observed = min((error for at, error in curve if at <= examples), default=curve[0][1])
    if examples <= curve[-1][0] or len(curve) < LEAST_POINTS:
        return Estimate(observed, 0.0)
    at, errors = np.array([point for point, _ in curve], float), np.array([error for _, error in curve])
    found, weights, noises = [], [], []
    for exponent in EXPONENTS:
        law = np.stack([np.ones_like(at), (at / at[-1]) ** -exponent], axis=1)
        (limit, scale), *_ = np.linalg.lstsq(law, errors, rcond=None)
        if scale <= 0:  # it rises: no such law
            limit, scale = errors.mean(), 0.0
        residual = float(((law @ (limit, scale) - errors) ** 2).sum())
        noise = max(LEAST_NOISE**2, residual / (len(curve) - 2))
        found.append(limit + scale * (examples / at[-1]) ** -exponent)
        # The likelihood of the residuals at their own variance.
        weights.append(-0.5 * len(curve) * np.log(noise))
        noises.append(noise)
    share = np.exp(np.array(weights) - max(weights))
    share /= share.sum()
    values = np.clip(found, 0.0, observed)
    mean = float(share @ values)
    variance = float(share @ ((values - mean) ** 2 + noises))
    return Estimate(mean, variance**0.5)
