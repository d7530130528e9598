"""Times as a journal writes them: short, in order, and no work shorter than it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiperf.clock import duration, moment

SECONDS = st.floats(1e-9, 1e7)


@given(SECONDS, SECONDS)
def test_moments_stay_in_order_and_are_short(one: float, other: float) -> None:
    assert moment(min(one, other)) <= moment(max(one, other))
    assert abs(moment(one) - one) <= 0.5000001e-6 + one * 1e-15
    assert moment(moment(one)) == moment(one)
    assert round(moment(one), 6) == moment(one)


@given(SECONDS)
def test_work_is_not_made_shorter_nor_nothing(seconds: float) -> None:
    written = duration(seconds)
    assert written > 0
    assert seconds * (1 - 1e-15) <= written <= seconds + 1.0001e-6
    assert round(written, 6) == written


@given(st.lists(SECONDS.map(duration), max_size=50))
def test_a_sum_of_durations_is_written_as_their_sum(each: list[float]) -> None:
    assert abs(moment(sum(each)) - sum(each)) <= sum(each) * 1e-14
