"""How long a group may be silent, and what becomes of one that dies or whose trials fail."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from aiperf.journal.events import Dispatched
from aiperf.run.group import AHEAD, BLOCKS, FIRST_STEP, REST_SECONDS, RESTARTS, Group, step_seconds
from aiperf.trial import State
from aiperf.wire.messages import Ceiling, Rate
from tests.journals import Scene, told

JOB, OTHER = [event for _, event in told(Scene(minutes=0.1)) if isinstance(event, Dispatched)][:2]
SLOW = Ceiling(1, "a", "cpu", "fp32", 64, Rate(8e9, 8e9, 0.0), Rate(1e9, 1e9, 0.0), seed=Rate(3e6, 2e6, 0.0))


def test_a_step_takes_its_operations_over_the_rate_of_the_seed() -> None:
    operations = 50 * 2 * (JOB.forward[0] + JOB.backward[0])
    assert step_seconds(JOB, [SLOW]) == pytest.approx(operations / 2e6)
    assert step_seconds(JOB, [SLOW, replace(SLOW, rank=2)]) == pytest.approx(operations / 4e6)


def test_the_slowest_rank_of_a_group_decides() -> None:
    slower = replace(SLOW, rank=2, seed=Rate(2e6, 1e6, 0.0))
    assert step_seconds(JOB, [SLOW, slower]) == pytest.approx(step_seconds(JOB, [slower, slower]))


def test_a_seed_too_slow_to_be_measured_is_foreseen_by_products() -> None:
    assert step_seconds(JOB, [replace(SLOW, seed=None)]) == pytest.approx(
        2e6 / 1e9 * step_seconds(JOB, [SLOW])
    )


def test_without_a_ceiling_nothing_is_foreseen() -> None:
    assert step_seconds(JOB, []) == 0.0


def test_a_group_without_work_may_be_silent() -> None:
    group = Group((1,), silence_seconds=10.0)
    assert group.overdue == math.inf


def test_a_first_step_may_take_longer_than_the_blocks_that_follow() -> None:
    group = Group((1,), silence_seconds=10.0)
    group.assign(JOB, 100.0, {})
    group.assign(OTHER, 130.0, {})  # what it prepares beside is no sign of life
    assert group.overdue == 100.0 + FIRST_STEP * 10.0
    group.await_block(last_seconds=1.0)
    assert group.patience == 10.0
    group.await_block(last_seconds=5.0)
    assert group.patience == BLOCKS * 5.0
    group.drop(JOB.trial.number, {})
    assert list(group.assigned) == [OTHER]
    assert group.patience == FIRST_STEP * 10.0


def test_a_step_that_is_known_to_be_slow_is_waited_for() -> None:
    slow = replace(SLOW, seed=Rate(2e4, 2e4, 0.0))
    group = Group((1,), silence_seconds=10.0)
    group.assign(JOB, 0.0, {1: slow, 2: SLOW})  # rank 2 is of another group
    assert group.patience == FIRST_STEP * step_seconds(JOB, [slow])


def test_a_group_has_two_trials_at_a_time() -> None:
    group = Group((1,), silence_seconds=10.0, ahead=AHEAD)
    for job in (JOB, OTHER)[:AHEAD]:
        assert group.wants_more(0.0)
        group.assign(job, 0.0, {})
    assert not group.wants_more(0.0)
    assert group.has(OTHER.trial.number, 1)
    assert not group.has(OTHER.trial.number, 2)


def test_nothing_is_prepared_beside_a_first_trial() -> None:
    """It would begin with weights that nobody trained."""
    group = Group((1,), silence_seconds=10.0)
    group.assign(JOB, 0.0, {})
    assert not group.wants_more(0.0)
    group.drop(JOB.trial.number, {})
    for job in (JOB, OTHER):
        assert group.wants_more(0.0)
        group.assign(job, 0.0, {})
    assert not group.wants_more(0.0)


def test_a_lost_group_has_nothing_and_is_given_up_in_the_end() -> None:
    group = Group((1,), silence_seconds=10.0)
    group.assign(JOB, 0.0, {})
    for _ in range(RESTARTS):
        group.lose()
        assert not group.is_given_up
    assert not group.assigned
    assert not group.wants_more(0.0)
    group.lose()
    assert group.is_given_up


def test_a_group_whose_trials_fail_pauses_ever_longer() -> None:
    group = Group((1,), silence_seconds=10.0)
    pauses = []
    for _ in range(9):
        group.rest_after(State.FAILED, 100.0)
        pauses.append(max(0.0, group.rests_until - 100.0))
    assert pauses == [0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0, REST_SECONDS, REST_SECONDS]
    assert not group.wants_more(100.0)
    assert group.wants_more(100.0 + REST_SECONDS)
    group.rest_after(State.COMPLETE, 200.0)
    group.rest_after(State.FAILED, 200.0)
    assert group.wants_more(200.0)


def test_a_trial_does_not_end_before_its_last_validation() -> None:
    group = Group((1,), silence_seconds=10.0)
    assert [group.ended(end) for end in (5.0, 4.9, 6.0)] == [5.0, 5.0, 6.0]
