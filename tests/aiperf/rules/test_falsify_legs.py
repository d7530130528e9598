"""Legs that were never worked in, put before or behind a good journal: nothing is read from them."""

from __future__ import annotations

import pytest

from aiperf.journal.events import CeilingMeasured, ControlMeasured, Event, RankReady
from tests.aiperf.rules.forged import (
    TIMED,
    evidence,
    failed,
    found,
    one,
    with_leg_before,
    with_leg_for_the_test,
)
from tests.journals import Timed, within

READY, CONTROL, CEILING = one(RankReady), one(ControlMeasured), one(CeilingMeasured)
FAST = within(CONTROL, examples_per_second=3.2e7, seconds=5120 / 3.2e7)
FALSE_DATA = {**READY.ready.data, "training_examples": 3, "validation_examples": 40_000}
FALSE_READY = within(READY, data=FALSE_DATA, device="NVIDIA GB200")
UNUSED: dict[str, tuple[Event, ...]] = {
    "control": (READY, FAST),
    "manifest": (FALSE_READY,),
    "ceiling": (READY, CEILING),
}


def figures(timed: list[Timed]) -> tuple[object, ...]:
    """What is said of a run besides its work: control, devices, data, peak and the old way of counting."""
    seen = evidence(timed)
    run, result = seen.replay, seen.score
    return (
        result.control,
        sorted(run.devices.items()),
        dict(run.manifest),
        result.peak_ops_per_second,
        result.aiperf1_ops_per_second,
    )


@pytest.mark.parametrize("lines", UNUSED.values(), ids=UNUSED)
def test_nothing_is_read_from_a_leg_that_never_started(lines: tuple[Event, ...]) -> None:
    assert figures(with_leg_before(*lines)(TIMED)) == figures(TIMED)


def test_nothing_is_read_from_a_leg_without_a_span_in_which_the_test_is_made() -> None:
    """As after an interrupt near the deadline, which is honest."""
    tested = with_leg_for_the_test()(TIMED)
    assert failed(tested) == {}
    assert figures(with_leg_for_the_test(FAST)(TIMED)) == figures(tested) == figures(TIMED)


def test_the_test_is_made_in_a_leg_whose_clock_started() -> None:
    forged = with_leg_for_the_test(FALSE_READY, released=False)(TIMED)
    assert figures(forged) == figures(TIMED)
    assert "Tested comes in a leg whose clock never started" in found(forged, "order").text
