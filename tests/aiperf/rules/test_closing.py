"""How early a group may close: by the formula since version 2 of the rules, before by the last validation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiperf.journal.events import Opened
from aiperf.rules.rule import Evidence
from aiperf.rules.trial_length import examples
from tests.journals import Scene, Simulation, replayed

STEP_SECONDS, VALIDATE_SECONDS = 63.66, 169.4


class Slow(Simulation):
    """A step takes a minute and a validation three, so that what is allowed for late messages is little."""

    def __init__(self, closing_share: float, minutes: float, rules: int) -> None:
        super().__init__(Scene(groups=1, minutes=minutes, epochs=2000))
        self.closing_share, self.rules = closing_share, rules

    def opened(self) -> Opened:
        return replace(super().opened(), rules=self.rules)

    def speed(self, group: int) -> float:
        return 4e6


@pytest.mark.parametrize(
    ("closing_share", "minutes", "rules", "early"),
    [
        (1.5, 600.0, 1, False),
        (1.5, 600.0, 2, False),
        (2.6, 599.567, 1, True),  # 310 s before the deadline, and 300 s are allowed
        (2.6, 599.567, 2, False),  # a quarter less for the validation, but a step of 64 s more
        (2.62, 600.0, 1, True),
        (2.62, 600.0, 2, True),
    ],
)
def test_a_trial_is_not_closed_earlier_than_its_group_reserves(
    closing_share: float, minutes: float, rules: int, early: bool
) -> None:
    run = replayed(Slow(closing_share, minutes, rules).run())
    last = run.attempts[0].validations[-1]
    assert last.segment.validate_seconds == pytest.approx(VALIDATE_SECONDS, rel=1e-3)
    assert last.segment.train_seconds / last.segment.steps == pytest.approx(STEP_SECONDS, rel=1e-3)
    seen = examples(Evidence(run, None, None, None))  # type: ignore[arg-type]
    assert [text for text in seen.contradictions if "too early" in text] == (
        [f"trial 0 was closed at {last.end:.3f} s, too early in leg 0"] if early else []
    )
