"""The time axis of a run."""

from __future__ import annotations

import numpy as np
import pytest

from aiperf.journal.attempts import Leg
from aiperf.journal.axis import SpanAxis
from aiperf.journal.events import LegBegan, LegEnded


def leg(index: int, released: float, end: float) -> Leg:
    began = LegBegan(index, "2026-01-01T00:00:00+00:00", (), ((1,),))
    return Leg(index, began, released=released, ended=LegEnded("deadline", end))


@pytest.mark.parametrize("legs", [0, 1, 2, 3])
def test_a_column_of_times_is_converted_as_each_of_them_is(legs: int) -> None:
    """Legs of 5, 7 and 9 s follow each other; a run that has just begun has none. Times before and after a
    leg are clipped to its part."""
    found = [leg(index, 10.0 * index, 10.0 * index + 5 + 2 * index) for index in range(legs)]
    axis = SpanAxis(found)
    places, times = np.repeat(np.arange(legs), 4), np.tile([-3.0, 11.0, 22.5, 99.0], legs)
    wanted = [axis.at(found[place], time) for place, time in zip(places, times)]
    assert axis.of(places, times).tolist() == wanted
    assert wanted[:1] + wanted[-1:] == ([0.0, [5.0, 12.0, 21.0][legs - 1]] if legs else [])
