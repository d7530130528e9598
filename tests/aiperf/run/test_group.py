"""How long a group may be silent, and how long it pauses when its trials fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiperf.journal.events import Dispatched
from aiperf.run.group import REST_SECONDS, SLOWER, Group, step_seconds
from aiperf.wire.reports import Ceiling, Rate
from aiperf.wire.trial import State
from tests.journals import Scene, told

JOB, OTHER = [event for _, event in told(Scene(minutes=0.1)) if isinstance(event, Dispatched)][:2]
SLOW = Ceiling(1, "a", "cpu", "fp32", 64, Rate(8e9, 8e9, 0.0), Rate(1e9, 1e9, 0.0), seed=Rate(3e6, 2e6, 0.0))
SLOWEST = replace(SLOW, rank=2, seed=Rate(2e6, 1e6, 0.0))
OPERATIONS = 50 * 2 * (JOB.forward[0] + JOB.backward[0])


@pytest.mark.parametrize(
    ("ceilings", "seconds"),
    [
        ([SLOW], OPERATIONS / 2e6),
        ([SLOW, replace(SLOW, rank=2)], OPERATIONS / 4e6),
        ([SLOW, SLOWEST], OPERATIONS / 2e6),  # the slowest rank of a group decides
        ([replace(SLOW, seed=None)], OPERATIONS / (8e9 / SLOWER)),  # too slow for a step
        ([], 0.0),
    ],
)
def test_a_step_takes_its_operations_over_the_rate_of_the_seed(
    ceilings: list[Ceiling], seconds: float
) -> None:
    assert step_seconds(JOB, ceilings) == pytest.approx(seconds)


def test_a_group_wants_one_trial_after_the_last_it_was_given() -> None:
    """Also if the one before that is still being written."""
    group, third = Group((1,), silence_seconds=10.0), replace(JOB, trial=replace(JOB.trial, number=99))
    wanted = [group.wants_more(0.0)]
    for job in (JOB, OTHER, third):
        group.assign(job, 0.0, {})
        wanted.append(group.wants_more(0.0))
        group.wanting = job.trial.number, job.attempt
        wanted.append(group.wants_more(0.0))
    assert wanted == [True, False, True, False, True, False, True]
    group.drop(JOB.trial.number, {})
    assert group.wants_more(0.0)
    group.prepared = 0
    assert not group.wants_more(0.0)
    group.lose()
    group.alive, group.prepared = True, 1
    group.assign(replace(third, attempt=2), 0.0, {})
    assert not group.wants_more(0.0)


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
