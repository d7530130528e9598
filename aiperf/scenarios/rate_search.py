"""Search for the highest query rate that passes a Server test. LoadGen judges a given rate, but finds
none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt

FINISHED = 1.05
"""Ratio between a rate that failed and one that passed at which the search ends: closer rates differ less
than two tests of one rate do."""
DOWN, UP, FULL = 0.5, 1.25, 0.95
"""Factors on a rate that failed, on one that passed with none above it known to fail, and on one that
passed a short test and failed the test of full length."""
FULL_TESTS = 6
"""Maximum number of tests of full length, each of which may take ten minutes."""


def highest_rate(passes: Callable[[float, bool], bool], first: float, least: float) -> float | None:
    """The highest rate found, in queries per second; None if no rate from `least` on passes.

    `passes` tests a rate, with full length if its second argument is true. The returned rate passed the last
    call, which was one of full length.
    """
    found = _bracketed(lambda rate: passes(rate, False), first, least)
    if found is None:
        return None
    for rate in _lower(found, least):
        if passes(rate, True):
            return rate
    return None


def _bracketed(passes: Callable[[float], bool], first: float, least: float) -> float | None:
    """The highest rate that passes short tests; None if none from `least` on does."""
    rate, failed = first, 0.0
    while not passes(rate):
        failed, rate = rate, DOWN * rate
        if rate < least:
            return None
    while not failed:
        if passes(UP * rate):
            rate *= UP
        else:
            failed = UP * rate
    while failed > FINISHED * rate:
        middle = sqrt(rate * failed)
        if passes(middle):
            rate = middle
        else:
            failed = middle
    return rate


def _lower(rate: float, least: float) -> Iterator[float]:
    """Yields a rate and lower ones for tests of full length, at most `FULL_TESTS` of them."""
    for _ in range(FULL_TESTS):
        if rate < least:
            return
        yield rate
        rate *= FULL
