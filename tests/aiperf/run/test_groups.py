"""A slow device is not a dead one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiperf.journal.events import Dispatched
from aiperf.run.groups import step_seconds
from aiperf.wire.messages import Ceiling, Rate
from tests.aiperf.journals import Scene, told

JOB = next(event for _, event in told(Scene(minutes=0.1)) if isinstance(event, Dispatched))
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
