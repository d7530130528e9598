"""The conduct by itself goes through every course as it was read by a person."""

from __future__ import annotations

import pytest

from aiperf.conduct.actions import Keep
from aiperf.conduct.course import Course
from aiperf.conduct.events import BlockDone, Built, ValidationDone
from aiperf.proposing.pace import Pace
from aiperf.proposing.plan import plan
from aiperf.tasks.language.tally import UNIT, Predicted
from aiperf.wire.trial import HyperParameters, Trial
from tests.aiperf.conduct.courses import SCRIPTS, SEED, Script, expected, followed

EXPECTED = expected()


def test_courses_have_different_names() -> None:
    assert [script.name for script in SCRIPTS] == list(EXPECTED)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_the_conduct_alone(script: Script) -> None:
    assert followed(script) == EXPECTED[script.name]


def test_of_two_validations_beyond_eight_bits_the_better_is_kept() -> None:
    """Their errors are both 1; by the bits they differ."""
    trial, training = Trial(0, None, (), HyperParameters(0.1, 8), 1, 3, 1), SCRIPTS[0].config.training
    course = Course(0, 1, Built(SEED, plan(trial, training, 8)), Pace())
    course.first()
    kept = []
    for bits in (10, 9, 12):
        list(course.take(BlockDone(1, 8, 1.0, 1.0, 1.0), 1.0))
        done = ValidationDone(Predicted(1, bits * UNIT, 1), 1.0, 1.0)
        kept.append(any(isinstance(action, Keep) for action in course.take(done, 1.0)))
    assert kept == [True, True, False]
