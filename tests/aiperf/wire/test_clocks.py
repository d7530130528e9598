"""Clocks compared by round trips, whatever the messages take."""

from __future__ import annotations

import pytest

from aiperf.wire.clocks import MOST_ROUND_TRIPS, ROUND_TRIPS, SAME_CLOCK, RoundTrips

WALL = 1.7e9
QUICK, STOPPED, CUT = (0.002, 0.001), (30.0, 0.001), (0.001, 25.0)
"""Seconds that a request and its answer take."""


def compared(ahead: float, *delays: tuple[float, float]) -> RoundTrips:
    """Round trips to a host whose clock is ahead by so much, one after the other until they are enough; the
    last delays are repeated."""
    trips, now = RoundTrips(), 5.0
    for there, back in [*delays, *delays[-1:] * MOST_ROUND_TRIPS]:
        number, wall = trips.ask(WALL + now, now), WALL + now + there + ahead
        now += there + back
        trips.hear(number, wall, now)
        if trips.enough:
            break
    return trips


@pytest.mark.parametrize("ahead", [0.0, 0.4, -3.0, 7200.0])
@pytest.mark.parametrize(
    ("delays", "known", "number"),
    [
        ([QUICK], True, ROUND_TRIPS),
        ([STOPPED, QUICK], True, ROUND_TRIPS),
        ([CUT, CUT, QUICK], True, ROUND_TRIPS),
        ([STOPPED, CUT, CUT, CUT, QUICK], True, 5),
        ([(1.5, 0.4)], True, ROUND_TRIPS),
        ([STOPPED], False, MOST_ROUND_TRIPS),
        ([(0.0, 2.1)], False, MOST_ROUND_TRIPS),
    ],
)
def test_the_true_difference_lies_within_the_uncertainty(
    ahead: float, delays: list[tuple[float, float]], known: bool, number: int
) -> None:
    trips = compared(ahead, *delays)
    assert trips.best is not None
    best, quickest = trips.best, min(sum(each) for each in delays)
    assert best.uncertainty_seconds == pytest.approx(quickest / 2)
    assert abs(best.offset_seconds - ahead) <= best.uncertainty_seconds + 1e-6
    assert best.least_seconds <= abs(ahead) + 1e-6
    assert (best.known, trips.ask(0.0, 0.0)) == (known, number + 1)


def test_a_late_answer_counts_for_its_own_request_and_others_for_none() -> None:
    trips = RoundTrips()
    first, second = trips.ask(WALL, 0.0), trips.ask(WALL + 5.0, 5.0)
    for number in (0, -1, 3):
        trips.hear(number, 0.0, 5.0)
    assert trips.best is None
    trips.hear(second, WALL + 5.25, 5.5)
    trips.hear(first, WALL + 40.0, 40.0)
    assert trips.best is not None
    assert trips.best.uncertainty_seconds == 0.25
    assert trips.best.offset_seconds == pytest.approx(0.0)
    assert (SAME_CLOCK.known, SAME_CLOCK.least_seconds) == (True, 0.0)
