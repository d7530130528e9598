"""How long a block of steps is: in a group, and by how many groups there are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.proposing.pace import (
    CLOSE_NOW,
    RECENT,
    TRANSIT_SECONDS,
    VALIDATE_NOW,
    Pace,
    TimedValidation,
    block_seconds,
    reserved_seconds,
)
from aiperf.proposing.plan import SEGMENT_SECONDS


def test_blocks_grow_with_the_groups_up_to_a_fifth_of_the_silence() -> None:
    assert [block_seconds(groups, 60.0) for groups in (1, 64, 86)] == [2.0] * 3
    assert block_seconds(344, 60.0) == 8.0
    assert [block_seconds(groups, 60.0) for groups in (516, 4096)] == [12.0] * 2
    assert block_seconds(1, 5.0) == 1.0
    assert block_seconds(4300, 600.0) == 20.0


@given(
    block=st.floats(0.05, 120.0),
    step=st.floats(1e-3, 300.0),
    trained=st.floats(0.0, SEGMENT_SECONDS, exclude_max=True),
    deadline=st.none() | st.floats(1e-3, 1e4),
    validate=st.floats(0.0, 100.0),
    left=st.integers(1, 10**6),
)
def test_a_block_is_no_longer_than_asked_for_or_one_step(
    block: float, step: float, trained: float, deadline: float | None, validate: float, left: int
) -> None:
    pace = Pace(False, deadline or math.inf, block)
    pace.validated(validate)
    steps = pace.steps_of_block(0.0, step, trained, left)
    room = pace.deadline - 1.25 * validate
    if room <= 0 or room < step:
        assert steps == CLOSE_NOW
        return
    assert 1 <= steps <= left
    longest = min(block, room / 2, SEGMENT_SECONDS - trained)
    assert steps == 1 or steps * step <= longest * (1 + 1e-9)
    assert steps == left or (steps + 1) * step > longest * (1 - 1e-9)


def test_a_segment_ends_after_its_seconds() -> None:
    assert Pace().steps_of_block(0.0, 0.1, SEGMENT_SECONDS, 100) == VALIDATE_NOW


def test_from_the_release_on_blocks_are_as_long_as_the_master_says() -> None:
    pace = Pace()
    pace.release(7.0, None, 12.0)
    assert (pace.block_seconds, pace.deadline) == (12.0, math.inf)
    pace.release(7.0, 100.0, 5.0)
    assert (pace.block_seconds, pace.deadline) == (5.0, 107.0 - TRANSIT_SECONDS)


@pytest.mark.parametrize(
    ("recent", "operations", "seconds"),
    [
        ([], 10, 0.0),
        ([(10, 4.0)], 10, 5.0),
        ([(10, 4.0)], 15, 7.5),
        ([(10, 4.0)], 1000, 10.0),
        ([(10, 4.0)], 1, 2.5),
        ([(10, 4.0), (20, 4.4), (20, 4.4)], 20, 10.0),
        ([(10, 4.0), *[(10, 1.0)] * 7], 10, 5.0),
        ([(10, 4.0), *[(10, 1.0)] * 8], 10, 1.25),
        ([(0, 4.0)], 10, 5.0),
    ],
)
def test_the_closing_validation_has_the_longest_of_the_recent_ones_and_a_quarter(
    recent: list[tuple[int, float]], operations: int, seconds: float
) -> None:
    """For a network of another size in proportion to the operations, by a factor of two at most."""
    assert reserved_seconds([TimedValidation(*each) for each in recent], operations) == seconds
    pace = Pace(operations=operations, deadline=100.0, recent=[TimedValidation(*each) for each in recent])
    assert pace.seconds_left(20.0) == 80.0 - seconds
    pace.validated(3.0)
    assert len(pace.recent) == min(RECENT, len(recent) + 1)
    assert pace.recent[-1] == TimedValidation(operations, pace.validate_seconds)


def test_a_step_that_does_not_fit_is_not_begun() -> None:
    pace = Pace(deadline=10.0, recent=[TimedValidation(1, 4.0)])
    assert [pace.steps_of_block(at, 2.0, 0.0, 9) for at in (2.9, 3.0, 3.1, 5.1)] == [
        1,
        1,
        CLOSE_NOW,
        CLOSE_NOW,
    ]
