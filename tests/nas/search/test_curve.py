"""A validation curve carried on: laws are found again, and nothing observed is talked away."""

from __future__ import annotations

import random

import pytest

from nas.search.evolution import extrapolate


def law(limit: float, scale: float, exponent: float, last: int = 10) -> list[tuple[int, float]]:
    return [(1000 * step, limit + scale * step**-exponent) for step in range(1, last + 1)]


@pytest.mark.parametrize("exponent", [0.2, 0.5, 1.0])
def test_a_law_is_found_again(exponent: float) -> None:
    found = extrapolate(law(0.1, 0.4, exponent), 40_000)
    assert found.error == pytest.approx(0.1 + 0.4 * 40**-exponent, abs=0.01)
    assert 0 < found.deviation < 0.02


def test_within_the_curve_it_is_what_was_observed() -> None:
    curve = law(0.1, 0.4, 0.5)
    assert extrapolate(curve, 5000).error == curve[4][1]
    assert extrapolate(curve, 5000).deviation == 0
    assert extrapolate(curve, 10).error == curve[0][1]


def test_too_short_a_curve_is_not_carried_on() -> None:
    assert extrapolate([(1000, 0.5), (2000, 0.4), (3000, 0.3)], 9000).error == 0.3


def test_the_further_and_the_noisier_the_less_is_known() -> None:
    rng = random.Random(1)
    clean = law(0.1, 0.4, 0.5)
    noisy = [(at, error + rng.gauss(0, 0.03)) for at, error in clean]
    assert extrapolate(noisy, 40_000).deviation > extrapolate(clean, 40_000).deviation
    assert extrapolate(noisy, 1_000_000).deviation >= extrapolate(noisy, 11_000).deviation


@pytest.mark.parametrize(
    "curve",
    [
        [(1000 * step, 0.5) for step in range(1, 9)],
        [(1000 * step, 0.1 * step) for step in range(1, 9)],  # it rises
        [(1000 * step, 0.0) for step in range(1, 9)],
        [(1000, 1.0), (1000, 0.0), (1000, 1.0), (1000, 0.0), (1000, 0.3)],
    ],
)
def test_strange_curves_give_an_error_that_can_be(curve: list[tuple[int, float]]) -> None:
    found = extrapolate(curve, 100_000)
    assert 0 <= found.error <= min(error for _, error in curve)
    assert found.deviation >= 0
