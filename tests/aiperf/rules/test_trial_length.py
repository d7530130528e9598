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
from aiperf.journal.events import Closed, Opened
from aiperf.rules.rule import Evidence
from aiperf.rules.trial_length import _kept, _since_best, examples
from aiperf.tasks.language.tally import UNIT, Predicted
from aiperf.wire.reports import NOTHING_KEPT
from aiperf.wire.trial import Segment, State
from tests.journals import Scene, Simulation, replayed
from tests.tables import ComesTo

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


def too_early(closing_share: float, minutes: float, rules: int) -> list[str]:
    run = replayed(Slow(closing_share, minutes, rules).run())
    last = run.attempts[0].validations[-1]
    assert last.segment.validate_seconds == pytest.approx(VALIDATE_SECONDS, rel=1e-3)
    assert last.segment.train_seconds / last.segment.steps == pytest.approx(STEP_SECONDS, rel=1e-3)
    seen = examples(Evidence(run, None, None, None))  # type: ignore[arg-type]
    return [text for text in seen.contradictions if "too early" in text]


def attempt_of(*bits: float, late: int = 0) -> Attempt:
    """An attempt on one window of 16 bytes, with a validation for each of `bits`; the last `late` are too
    late."""
    closed = Validations()
    for index, each in enumerate(bits):
        tally = Predicted(1, round(each * UNIT) * 16, 16)
        event = Closed(Segment(0, 1, index, 1, 1, 1.0, tally, 0.1), 1.0)
        closed.append(0, 1.0, event.row, in_time=index < len(bits) - late)
    job = cast(Any, SimpleNamespace(attempt=1, trial=SimpleNamespace(number=7)))
    nobody = nothing = cast(Any, None)
    places = array("i", range(len(bits)))
    return Attempt(0, dispatched=job, leg=nobody, attempt_rows=nothing, table=closed, places=places)


def best(*bits: float) -> tuple[int | None, list[int]]:
    """The index of the best validation, and how long each one is behind the best until then."""
    attempt = attempt_of(*bits)
    assert attempt.unbounded == min(bits) / 8
    assert attempt.error == min(1.0, attempt.unbounded)
    return chosen_of(attempt), since(attempt)


def since(attempt: Attempt, kept: int | None = None) -> list[int]:
    """As early stopping counts, by what the group said that it kept."""
    if kept is not None:
        attempt.told_state, attempt.kept = State.COMPLETE, kept
    return list(_since_best(attempt.rows, attempt.kept))


def chosen(late: int, kept: int) -> int | None:
    """A group may have taken a validation for too late that is in time in the journal, or the other way
    round: then the lowest error there is not that of its network."""
    attempt = attempt_of(4, 3, 2, late=late)
    attempt.told_state, attempt.kept = State.STOPPED, kept
    assert attempt.chosen_from == (attempt.best_validation is not None)
    return chosen_of(attempt)


def chosen_of(attempt: Attempt) -> int | None:
    best = attempt.best_validation
    return None if best is None else best.segment.index


def kept(kept: int, *ends: float) -> list[str]:
    """The deadline is at 100 s, and its neighbourhood 10 s and a thousandth."""
    attempt = attempt_of(4, 3, 2)
    attempt.table.rows["end"][:] = ends
    attempt.leg = Leg(0, cast(Any, None), deadline=100.0)
    attempt.told_state, attempt.kept = State.STOPPED, kept
    return list(_kept(attempt, attempt.rows))


def test_when_a_trial_may_be_closed_and_which_of_its_validations_is_the_best(
    comes_to_what_was_read: ComesTo,
) -> None:
    """Not earlier than its group reserves. The smallest error is the best above eight bits, as a trainer
    has it (tests/aiperf/training/test_text.py); but a group says which network it kept. Near the deadline
    alone the last validation may be left out or late."""
    comes_to_what_was_read("trial_length.txt", {**globals(), "NOTHING_KEPT": NOTHING_KEPT})
