"""Which validation of a trial is the best: that with the smallest error, also where errors end at 1."""

from __future__ import annotations

from typing import Any, cast

import pytest

from aiperf.journal.attempts import Attempt, Validation
from aiperf.journal.events import Ended
from aiperf.rules.planned import _since_best
from aiperf.tally import UNIT, Predicted
from aiperf.trial import Segment, State
from aiperf.wire.messages import NOTHING_KEPT, Finished


def attempt_of(*bits: float, late: int = 0) -> Attempt:
    """Of one window of 16 bytes, validated so often; the last ones too late."""
    segments = [
        Segment(0, 1, index, 1, 1, 1.0, Predicted(1, round(each * UNIT) * 16, 16), 0.1)
        for index, each in enumerate(bits)
    ]
    validations = [
        Validation(segment, 1.0, 1.0, in_time=segment.index < len(bits) - late) for segment in segments
    ]
    nobody = cast(Any, None)
    return Attempt(0, dispatched=nobody, leg=nobody, dispatch_time=0.0, validations=validations)


@pytest.mark.parametrize(
    ("bits", "best", "since"), [((10, 9, 9, 12), 1, [0, 0, 1, 2]), ((3, 9, 2), 2, [0, 1, 0])]
)
def test_the_smallest_is_the_best_above_eight_bits_too(
    bits: tuple[float, ...], best: int, since: list[int]
) -> None:
    """As the trainer keeps it (tests/aiperf/training/test_text.py), and early stopping counts."""
    attempt = attempt_of(*bits)
    assert attempt.best_validation is attempt.validations[best]
    assert attempt.unbounded == bits[best] / 8
    assert attempt.error == min(1.0, bits[best] / 8)
    assert list(_since_best(attempt)) == since


@pytest.mark.parametrize(
    ("late", "kept", "best"),
    [(1, 1, 1), (1, 2, None), (0, 2, 2), (0, 1, 1), (3, NOTHING_KEPT, None), (0, NOTHING_KEPT, None)],
)
def test_the_best_is_the_one_whose_network_was_kept_in_time(late: int, kept: int, best: int | None) -> None:
    """A group may have taken a validation for too late that is in time in the journal, or the other way
    round: then the lowest error there is not that of its network."""
    attempt = attempt_of(4, 3, 2, late=late)
    attempt.ended = Ended(Finished(0, 1, State.STOPPED, "", kept=kept), 1.0)
    found = attempt.best_validation
    assert (None if found is None else found.segment.index) == best
    assert attempt.chosen_from == (best is not None)
