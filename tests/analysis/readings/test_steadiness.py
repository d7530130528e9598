"""The time that a run lost because its machine's speed changed, from the steps of its networks."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from aiperf.journal.events import Origin, Stepped
from aiperf.journal.replay import Replay
from aiperf.wire.reports import Fallback
from analysis.readings.disturbance import disturbance_text
from analysis.readings.steadiness import time_lost
from tests.journals import Scene, of_origin, replayed, told
from tests.tables import ComesTo

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


def twice_as_long_at_the_end(trial: int, place: int) -> float:
    return 2.0 if place > 6 else 1.0


def lucky(trial: int, place: int) -> float:
    """As above, and one block is fast by luck, with less than a tenth of the examples. In examples these are
    750, 500 (lucky), 750, 750, 500, 750 as expected; then 750, 500, 750, 750, 500 twice as long."""
    return 0.5 if place == 2 else twice_as_long_at_the_end(trial, place)


def lost(found: Replay | Callable[[int, int], float], scene: Scene = LONG) -> float | None:
    share = time_lost(found if isinstance(found, Replay) else run(found, scene))
    return share and round(share, 3)


def of_examples(number: int) -> Replay:
    found = run(twice_as_long_at_the_end)
    found.blocks.rows["examples"] = number
    return found


def fallen_back() -> Replay:
    found = run(twice_as_long_at_the_end)
    for attempt in found.attempts:
        attempt.fallback = Fallback(attempt.trial.number, 1, "fused", "its step differs")
    return found


def noisy() -> Replay:
    """Blocks of one step on a steady machine, whose times have a standard deviation of a tenth."""
    rng, found = random.Random(1), run(lambda trial, place: 1.0)
    blocks = found.blocks.rows
    for name, value in (("steps", 1), ("examples", 50), ("attempts", 0)):
        blocks[name] = value
    blocks["seconds"] = [rng.gauss(1.0, 0.1) for _ in blocks]
    return found


def test_the_time_lost_is_that_above_the_fastest_tenth(comes_to_what_was_read: ComesTo) -> None:
    """Networks may differ, and so may the first block of each; the noise of single steps averages out. Steps
    of an engine that fell back are not compared, and what was not measured was not disturbed."""
    pretended = replayed(of_origin(told(LONG), Origin.PRETENDED))
    comes_to_what_was_read("time_lost.txt", {**globals(), "replace": replace, "pretended": pretended})


def test_a_change_of_speed_stands_beside_what_disturbed_the_run() -> None:
    steady, slower = run(lambda trial, place: 1.0), run(twice_as_long_at_the_end)
    lines = disturbance_text(slower)
    assert lines[:-1] == disturbance_text(steady)
    assert lines[-1] == (
        "steps of one network did not take equally long: 31.0 % of their time would have been saved at the "
        "rate of the fastest tenth"
    )
