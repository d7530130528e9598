"""The conduct by itself goes through every course as it was read by a person."""

from __future__ import annotations

import pytest

from tests.aiperf.conduct.courses import SCRIPTS, Script, expected, followed

EXPECTED = expected()


def test_there_are_sixty_courses_of_different_names() -> None:
    assert [script.name for script in SCRIPTS] == list(EXPECTED)
    assert len(EXPECTED) == 60


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_the_conduct_alone(script: Script) -> None:
    assert followed(script) == EXPECTED[script.name]
