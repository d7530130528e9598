"""Foresight: laws are found again in a validation curve, and whom it takes for a parent by them."""

from __future__ import annotations

import random

import pytest

from aiperf.config import BoundsConfig
from nas.search import Foresight, Observation
from nas.search.evolution import _foreseen, extrapolate
from nas.seeds import residual


def falling(
    limit: float, steps: int, noise: float = 0.0, share: float = 1.0
) -> tuple[tuple[int, float], ...]:
    """A law that is at `limit` + 0.4 (a share of it) after 1,000 images, and at `limit` in the end."""
    return tuple(
        (1000 * step, limit + share * 0.4 / step + noise * (-1) ** step) for step in range(1, steps + 1)
    )


def told(*observations: Observation) -> Foresight:
    """A search that was asked for four trials, of which these were reported."""
    search = Foresight(residual(), 1, BoundsConfig(), population=10)
    for number in range(4):
        search.ask(number, 1)
    for each in observations:
        search.tell(each)
    return search


def test_foresight_compares_at_the_longest_schedule() -> None:
    """One has trained for long, to 0.14; the other is behind it at any time seen, and will be below that."""
    long = Observation(1, 40_000, falling(0.13, 40, share=0.2))
    promising, hopeless = Observation(2, 8_000, falling(0.10, 8)), Observation(2, 8_000, falling(0.15, 8))
    assert told(long, promising).ask(4, 1).parent == 2
    assert told(long, hopeless).ask(4, 1).parent == 1
    assert promising.error_within(8_000) > long.error_within(8_000)


def test_foresight_trusts_the_surer_of_two_like_laws() -> None:
    noisy, sure = Observation(1, 8_000, falling(0.10, 8, 0.02)), Observation(2, 8_000, falling(0.102, 8))
    longest = Observation(0, 40_000, falling(0.5, 40))
    search = told(longest, noisy, sure)
    living = [search._living[number] for number in (1, 2, 0)]
    everyone = random.Random(1)
    chosen = {search.choose(everyone, living).observation.number for _ in range(50)}
    assert 2 in chosen
    assert min(living[:2], key=lambda each: _foreseen(each, 40_000)).observation.number == 2


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
