"""The highest rate of queries that a Server test allows. LoadGen judges a rate; which one is ours to find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt

FINISHED = 1.05
"""Between a rate that passed and one that did not: nearer ones differ less than two tests of one rate."""
DOWN, UP, FULL = 0.5, 1.25, 0.95
"""Factors on a rate that failed, on one that passed with none above it known to fail, and on one that
passed a short test and failed the test of full length."""
FULL_TESTS = 6
"""At most so many of full length; each may take ten minutes."""


def highest_rate(passes: Callable[[float, bool], bool], first: float, least: float) -> float | None:
    """Queries a second; None where no rate from `least` on passes.

    `passes` tests a rate, in full length where told so; the rate that is returned passed its last call, in
    full length.
    """
    found = _bracketed(lambda rate: passes(rate, False), first, least)
    if found is None:
        return None
    for rate in _lower(found, least):
        if passes(rate, True):
            return rate
    return None


def _bracketed(passes: Callable[[float], bool], first: float, least: float) -> float | None:
    """By short tests."""
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
    for _ in range(FULL_TESTS):
        if rate < least:
            return
        yield rate
        rate *= FULL
