"""How long a trial is: how early its group may close it, and which of its validations is the best, also where
errors end at 1.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aiperf.journal.attempts import Attempt, Leg
from aiperf.journal.columns import Validations
from aiperf.journal.events import Closed, Ended, Opened
from aiperf.rules.rule import Evidence
from aiperf.rules.trial_length import _kept, _since_best, examples
from aiperf.tasks.language.tally import UNIT, Predicted
from aiperf.wire.messages import NOTHING_KEPT, Finished
from aiperf.wire.trial import Segment, State
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


def attempt_of(*bits: float, late: int = 0) -> Attempt:
    """An attempt on one window of 16 bytes, with a validation for each of `bits`; the last `late` are too
    late."""
    closed = Validations()
    for index, each in enumerate(bits):
        tally = Predicted(1, round(each * UNIT) * 16, 16)
        event = Closed(Segment(0, 1, index, 1, 1, 1.0, tally, 0.1), 1.0)
        closed.append(0, 1.0, event.row, in_time=index < len(bits) - late)
    job = cast(Any, SimpleNamespace(attempt=1, trial=SimpleNamespace(number=7)))
    nobody = cast(Any, None)
    places = array("q", range(len(bits)))
    return Attempt(0, dispatched=job, leg=nobody, dispatch_time=0.0, table=closed, places=places)


@pytest.mark.parametrize(
    ("bits", "best", "since"), [((10, 9, 9, 12), 1, [0, 0, 1, 2]), ((3, 9, 2), 2, [0, 1, 0])]
)
def test_the_smallest_is_the_best_above_eight_bits_too(
    bits: tuple[float, ...], best: int, since: list[int]
) -> None:
    """As the trainer keeps it (tests/aiperf/training/test_text.py), and early stopping counts."""
    attempt = attempt_of(*bits)
    assert attempt.best_validation == attempt.validations[best]
    assert attempt.unbounded == bits[best] / 8
    assert attempt.error == min(1.0, bits[best] / 8)
    assert list(_since_best(attempt.rows, attempt.kept)) == since


@pytest.mark.parametrize(
    ("late", "kept", "best"),
    [(1, 1, 1), (1, 2, 2), (0, 2, 2), (0, 1, 1), (3, NOTHING_KEPT, None), (0, NOTHING_KEPT, None)],
)
def test_the_best_is_the_one_whose_network_was_kept(late: int, kept: int, best: int | None) -> None:
    """A group may have taken a validation for too late that is in time in the journal, or the other way
    round: then the lowest error there is not that of its network."""
    attempt = attempt_of(4, 3, 2, late=late)
    attempt.ended = Ended(Finished(0, 1, State.STOPPED, "", kept=kept), 1.0)
    found = attempt.best_validation
    assert (None if found is None else found.segment.index) == best
    assert attempt.chosen_from == (best is not None)


def test_early_stopping_counts_as_the_group_did() -> None:
    """With a validation that was in time for it, and came too late for the journal while the master stood."""
    attempt = attempt_of(4, 3, 2, 5, late=2)
    assert list(_since_best(attempt.rows, attempt.kept)) == [0, 0, 1, 2]
    attempt.ended = Ended(Finished(0, 1, State.COMPLETE, "", kept=2), 1.0)
    assert list(_since_best(attempt.rows, attempt.kept)) == [0, 0, 0, 1]
    assert list(_since_best(attempt_of(4, 3, late=2).rows, None)) == [1, 2], "none was in time"


@pytest.mark.parametrize(
    ("kept", "ends", "says"),
    [
        (2, (10, 80, 95), ""),
        (1, (10, 80, 95), ""),
        (0, (10, 80, 95), "kept segment 0, but 2 was its best one"),
        (NOTHING_KEPT, (10, 80, 95), "kept segment -1, but 2 was its best one"),
        (1, (10, 60, 80), "kept segment 1, but 2 was its best one"),
        (2, (10, 80, 105), ""),
        (2, (10, 80, 115), "kept segment 2, which ended long after the deadline"),
    ],
)
def test_near_the_deadline_alone_the_last_validation_may_be_left_out_or_late(
    kept: int, ends: tuple[float, ...], says: str
) -> None:
    """The deadline is at 100 s, and its neighbourhood 10 s and a thousandth."""
    attempt = attempt_of(4, 3, 2)
    attempt.table.rows["end"][:] = ends
    attempt.leg = Leg(0, cast(Any, None), deadline=100.0)
    attempt.ended = Ended(Finished(0, 1, State.STOPPED, "", kept=kept), 1.0)
    assert list(_kept(attempt, attempt.rows)) == ([f"trial 7 {says}"] if says else [])
