"""The highest rate: near the one that is known, tested in full length, or none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.scenarios.latencies import Latencies
from aiperf.scenarios.rate_search import FINISHED, FULL, FULL_TESTS, highest_rate
from aiperf.scenarios.scenario import SCENARIOS, user_conf
from tests.tables import ComesTo

positive = st.floats(1e-2, 1e6)


@given(most=positive, first=positive)
def test_it_comes_near_the_highest_rate_that_passes(most: float, first: float) -> None:
    calls: list[tuple[float, bool]] = []

    def passes(rate: float, full: bool) -> bool:
        calls.append((rate, full))
        return rate <= most

    found = highest_rate(passes, first, least=1e-3)
    assert found is not None
    assert most / (FINISHED * 1.0001) <= found <= most
    assert calls[-1] == (found, True)
    assert [full for _, full in calls].count(True) == 1


def test_nothing_is_tested_below_the_least() -> None:
    tested: list[float] = []

    def never(rate: float, full: bool) -> bool:
        tested.append(rate)
        return False

    assert highest_rate(never, 100.0, 10.0) is None
    assert tested == [100.0, 50.0, 25.0, 12.5]


@pytest.mark.parametrize("bound", [90.0, 0.0])
def test_what_holds_in_a_short_test_only_is_lowered_in_full_length_a_few_times(bound: float) -> None:
    full_tests: list[float] = []

    def passes(rate: float, full: bool) -> bool:
        if full:
            full_tests.append(rate)
        return rate <= (bound if full else 100.0)

    found = highest_rate(passes, 100.0, 1.0)
    if bound:
        assert found == full_tests[-1]
        assert bound * FULL <= found <= bound
        assert all(rate > bound for rate in full_tests[:-1])
    else:
        assert found is None
        assert len(full_tests) == FULL_TESTS


def test_the_user_conf(comes_to_what_was_read: ComesTo) -> None:
    def conf(name: str, samples: int) -> list[str]:
        """In a set of so many samples, of which 99 are held in memory, for ten minutes."""
        return user_conf(SCENARIOS[name], 600.0, samples, 99).splitlines(keepends=True)

    comes_to_what_was_read("user_conf.txt", {"conf": conf})


def test_percentiles_are_those_of_the_sorted_latencies() -> None:
    """LoadGen takes those of 1,000 latencies that have 500, 900, … below them."""
    places = {"50.00": 500, "90.00": 900, "95.00": 950, "97.00": 970, "99.00": 990, "99.90": 999}
    assert Latencies.of(float(value) for value in reversed(range(1000))) == Latencies(
        number=1000, mean=499.5, least=0.0, most=999.0, percentiles=places
    )
