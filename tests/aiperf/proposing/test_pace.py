"""Steps, segments and learning rates of a trial; and how long a block of steps is."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from aiperf.config import LimitsConfig, load_preset
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
from aiperf.proposing.plan import SEGMENT_SECONDS, Plan, coupled_seconds, fabric_seconds, plan
from aiperf.wire.trial import HyperParameters, Trial
from tests.tables import ComesTo


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


def test_from_the_release_on_blocks_are_as_long_as_the_master_says() -> None:
    pace = Pace()
    pace.release(7.0, None, 12.0)
    assert (pace.block_seconds, pace.deadline) == (12.0, math.inf)
    pace.release(7.0, 100.0, 5.0)
    assert (pace.block_seconds, pace.deadline) == (5.0, 107.0 - TRANSIT_SECONDS)


def reserved(operations: int, *recent: tuple[int, float]) -> float:
    timed = [TimedValidation(*each) for each in recent]
    pace = Pace(operations=operations, deadline=100.0, recent=list(timed))
    seconds = reserved_seconds(timed, operations)
    assert pace.seconds_left(20.0) == 80.0 - seconds
    pace.validated(3.0)
    assert len(pace.recent) == min(RECENT, len(recent) + 1)
    assert pace.recent[-1] == TimedValidation(operations, pace.validate_seconds)
    return seconds


def test_the_closing_validation_has_the_longest_of_the_recent_ones_and_a_quarter(
    comes_to_what_was_read: ComesTo,
) -> None:
    """For a network of another size in proportion to the operations, by a factor of two at most. Blocks grow
    with the groups up to a fifth of the silence."""
    comes_to_what_was_read("pace.txt", {"reserved": reserved, "block_seconds": block_seconds})


def test_a_segment_ends_after_its_seconds_and_a_step_that_does_not_fit_is_not_begun() -> None:
    assert Pace().steps_of_block(0.0, 0.1, SEGMENT_SECONDS, 100) == VALIDATE_NOW
    pace = Pace(deadline=10.0, recent=[TimedValidation(1, 4.0)])
    steps = [pace.steps_of_block(at, 2.0, 0.0, 9) for at in (2.9, 3.0, 3.1, 5.1)]
    assert steps == [1, 1, CLOSE_NOW, CLOSE_NOW]


# Plans


TRAINING = replace(load_preset("digits").training, validate_every_examples=2000, warmup=0.1, decay="cosine")
COSINE = Plan(steps=110, segment_steps=40, warmup_steps=10, peak_rate=0.2, decay="cosine")
TRAPEZOID = replace(COSINE, decay="trapezoid")


def planned(epochs: int, batch_size: int = 50) -> tuple[int, int]:
    """The steps of a trial on 200 images, and of its segments."""
    found = plan(Trial(0, None, (), HyperParameters(0.2, batch_size), 1, epochs, 0), TRAINING, 200)
    return found.steps, found.segment_steps


def rates(plan: Plan, *steps: int, end: int | None = None) -> list[float]:
    return [round(plan.rate(step, end=end), 12) for step in steps]


def fabric(minutes: float, ranks: int) -> tuple[float, float]:
    """Seconds of the fabric, and those of the coupled control."""
    seconds = fabric_seconds(LimitsConfig(minutes=minutes, max_trials=1), ranks)
    return round(seconds, 9), round(coupled_seconds(seconds), 9)


def test_a_plan_by_hand(comes_to_what_was_read: ComesTo) -> None:
    """Steps cover the epochs and no more than one batch beyond; a validation follows about so many images. A
    rate rises linearly, and falls before a deadline as at the end of a plan. The fabric takes a tenth of the
    span, and nothing of a very short one."""
    comes_to_what_was_read("plans.txt", globals())
