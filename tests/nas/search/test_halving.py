"""Asynchronous successive halving: who goes on, and what nonsense does to it."""

from __future__ import annotations

import math

import pytest

from nas.search import Halving


def told(halving: Halving, errors: dict[int, float]) -> None:
    for number, error in errors.items():
        halving.dispatched(number, None)
        halving.tell(number, error)


def test_one_in_three_goes_on_and_the_best_first() -> None:
    halving = Halving(4)
    told(halving, {0: 0.5, 1: 0.4})
    assert halving.promotion(range(10)) is None
    told(halving, {2: 0.3})
    assert halving.promotion(range(10)) == 2
    halving.dispatched(3, 2)
    assert halving.promotion(range(10)) is None  # no barrier: a new one is begun instead
    told(halving, {4: 0.9, 5: 0.8, 6: 0.1})
    assert halving.promotion(range(10)) == 6


def test_the_highest_rung_is_served_first_and_the_last_one_ends() -> None:
    halving = Halving(3)
    told(halving, {number: number / 100 for number in range(9)})
    for number in range(3):
        assert halving.promotion(range(20)) == number
        halving.dispatched(9 + number, number)
    for number in range(3):
        assert halving.rung_after(number) == 1
        halving.tell(9 + number, 0.01 * number)
    told(halving, {20: 0.0, 21: 0.5, 22: 0.5})
    assert halving.promotion(range(30)) == 9  # of rung 1; rung 0 has its best one, too
    halving.dispatched(12, 9)
    halving.tell(12, 0.0)
    assert halving.promotion(range(30)) == 20


def test_only_those_whose_weights_are_kept_go_on() -> None:
    halving = Halving(2)
    told(halving, {number: number / 100 for number in range(6)})
    assert halving.promotion({1, 4}) == 1
    assert halving.promotion({4}) is None


def test_of_equals_the_first_to_arrive() -> None:
    halving = Halving(2)
    told(halving, dict.fromkeys(range(10_000), 0.5))
    assert halving.promotion(range(10_000)) == 0


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -0.1])
def test_what_is_no_error_is_refused(wrong: float) -> None:
    halving = Halving(2)
    halving.dispatched(0, None)
    with pytest.raises(ValueError, match="trial 0 has the error"):
        halving.tell(0, wrong)
