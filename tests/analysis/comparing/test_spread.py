"""Several runs as one figure, worked out by hand."""

from __future__ import annotations

from math import inf, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.comparing.spread import Summed, median, olympic, variation

FIVE = (30.0, 10.0, 20.0, 80.0, 40.0)


def test_of_five_runs_that_got_there() -> None:
    assert median(FIVE) == Summed(30.0)
    assert olympic(FIVE) == Summed((30.0 + 20.0 + 40.0) / 3)  # without 10 and 80
    deviation = sqrt((6**2 + 26**2 + 16**2 + 44**2 + 4**2) / 4)  # around 36
    assert variation(FIVE).value == pytest.approx(deviation / 36.0)


def test_one_that_never_got_there_is_the_slowest() -> None:
    values = (30.0, 10.0, 20.0, inf, 40.0)
    assert median(values) == Summed(30.0)
    assert olympic(values) == Summed((20.0 + 30.0 + 40.0) / 3)
    assert variation(values) == Summed(None, "1 not reached")


def test_two_that_never_got_there_leave_no_olympic_mean() -> None:
    values = (30.0, inf, 20.0, inf, 40.0)
    assert median(values) == Summed(40.0)
    assert olympic(values) == Summed(None, "invalid: 2 not reached")
    assert variation(values) == Summed(None, "2 not reached")


def test_of_half_the_runs_there_is_no_median() -> None:
    assert median((1.0, inf)) == Summed(None, "not reached")
    assert median((inf,)) == Summed(None, "not reached")


def test_too_few_runs() -> None:
    assert olympic((1.0, 2.0)) == Summed(None, "needs 3 runs")
    assert variation((1.0,)) == Summed(None, "needs 2 runs")
    assert variation((0.0, 0.0)) == Summed(None, "needs 2 runs")


@given(st.lists(st.floats(0.1, 1e6), min_size=3, max_size=12), st.randoms())
def test_the_order_of_the_runs_says_nothing(values: list[float], random: object) -> None:
    shuffled = sorted(values, key=lambda _: random.random())  # type: ignore[attr-defined]
    for reading in (median, olympic, variation):
        assert reading(shuffled).value == pytest.approx(reading(values).value)
    found = olympic(values).value
    assert found is not None
    assert min(values) <= found * (1 + 1e-9)
    assert found <= max(values) * (1 + 1e-9)
