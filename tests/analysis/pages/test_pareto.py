"""The Pareto front of a run's trials, against every pair of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aiperf.tasks.images import IMAGES
from analysis.pages.figures.pareto import Dot, dots, front, pareto


def dot(number: int, operations: int, error: float) -> Dot:
    row: Any = SimpleNamespace(number=number)
    return Dot(operations, error, row)


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from([0.0, 0.1, 0.2, 0.3])), max_size=12))
def test_no_other_trial_beats_one_of_the_front(places: list[tuple[int, float]]) -> None:
    found = [dot(number, *place) for number, place in enumerate(places)]

    def beaten(one: Dot) -> bool:
        place, own = (one.operations, one.error), one.row.number
        return any(
            other.operations <= one.operations
            and other.error <= one.error
            and ((other.operations, other.error) != place or other.row.number < own)
            for other in found
        )

    expected = sorted((one for one in found if not beaten(one)), key=lambda one: one.operations)
    assert front(found) == expected


def test_what_has_no_error_or_no_count_has_no_place() -> None:
    rows: list[Any] = [
        SimpleNamespace(number=0, operations=5, error=0.5),
        SimpleNamespace(number=1, operations=None, error=0.1),
        SimpleNamespace(number=2, operations=3, error=None),
    ]
    assert dots(rows) == [Dot(5, 0.5, rows[0])]


def test_one_trial_may_be_better_than_all_others_in_both() -> None:
    rows: list[Any] = [
        SimpleNamespace(
            number=number, operations=5 + number, error=0.1 * number, origin="", parameters=9, epochs=1
        )
        for number in (1, 2, 3)
    ]
    assert pareto(rows, IMAGES).says == (
        "Of 3 trials trial 1 (6 OP, 10.00 %) has both the fewest operations and the lowest error."
    )
