"""The time that a run lost because its machine's speed changed, from the steps of its networks."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from aiperf.journal.events import Origin, Stepped
from aiperf.journal.replay import Replay
from aiperf.wire.messages import Fallback
from analysis.readings.disturbance import disturbance_text
from analysis.readings.steadiness import time_lost
from tests.journals import Scene, of_origin, told

LONG = Scene(groups=1, minutes=4.0, epochs=40)


def run(slowness: Callable[[int, int], float], scene: Scene = LONG) -> Replay:
    """A run whose blocks take as many times as long, by the trial and the number of the block in it."""
    found, number = Replay(), dict[int, int]()
    for t, event in told(scene):
        if isinstance(event, Stepped):
            block = event.block
            place = number[block.trial] = number.get(block.trial, -1) + 1
            slower = block.seconds * slowness(block.trial, place)
            event = replace(event, block=replace(block, seconds=slower))
        found.add(t, event)
    return found


def test_equal_steps_that_take_equally_long_lose_nothing() -> None:
    """Networks may differ, and so may the first block of each."""
    found = run(lambda trial, place: (1.0 + trial) * (5.0 if place == 0 else 1.0))
    assert time_lost(found) == pytest.approx(0)


def test_the_time_lost_is_that_above_the_fastest_tenth() -> None:
    """The last five of each trial's eleven later blocks take twice as long, and one is fast by luck, with
    less than a tenth of the examples."""
    lucky = run(lambda trial, place: 0.5 if place == 2 else 2.0 if place > 6 else 1.0)
    # In examples: 750, 500 (lucky), 750, 750, 500, 750 as expected; 750, 500, 750, 750, 500 twice as long.
    seconds = 750 + 250 + 750 + 750 + 500 + 750 + 2 * (750 + 500 + 750 + 750 + 500)
    assert time_lost(lucky) == pytest.approx(1 - 7250 / seconds, abs=1e-3)


def twice_as_long_at_the_end(trial: int, place: int) -> float:
    return 2.0 if place > 6 else 1.0


@pytest.mark.parametrize("epochs", [30, 1])
def test_of_short_trials_nothing_is_known(epochs: int) -> None:
    """Eight blocks, and one."""
    assert time_lost(run(twice_as_long_at_the_end, replace(LONG, epochs=epochs))) is None


def test_steps_of_an_engine_that_fell_back_are_not_compared() -> None:
    found = run(twice_as_long_at_the_end)
    for attempt in found.attempts:
        attempt.fallback = Fallback(attempt.trial.number, 1, "fused", "its step differs")
    assert time_lost(found) is None


def test_a_change_of_speed_stands_beside_what_disturbed_the_run() -> None:
    steady, slower = run(lambda trial, place: 1.0), run(twice_as_long_at_the_end)
    lines = disturbance_text(slower)
    assert lines[:-1] == disturbance_text(steady)
    assert lines[-1] == (
        "steps of one network did not take equally long: 31.0 % of their time would have been saved at the "
        "rate of the fastest tenth"
    )


def test_the_noise_of_single_steps_averages_out() -> None:
    """Blocks of one step on a steady machine, whose times have a standard deviation of a tenth."""
    rng, found = random.Random(1), run(lambda trial, place: 1.0)
    blocks = found.blocks.rows
    for name, value in (("steps", 1), ("examples", 50), ("attempts", 0)):
        blocks[name] = value
    blocks["seconds"] = [rng.gauss(1.0, 0.1) for _ in blocks]
    assert time_lost(found) == pytest.approx(0.03, abs=0.02)


@pytest.mark.parametrize("number", [1 << 60, (1 << 63) - 1])
def test_a_journal_may_hold_any_number(number: int) -> None:
    found = run(twice_as_long_at_the_end)
    found.blocks.rows["examples"] = number
    lost = time_lost(found)
    assert lost is not None
    assert 0 <= lost <= 1


def test_what_was_not_measured_was_not_disturbed() -> None:
    pretended = Replay()
    for t, event in of_origin(told(LONG), Origin.PRETENDED):
        pretended.add(t, event)
    assert time_lost(pretended) is None
