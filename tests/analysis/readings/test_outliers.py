"""Who is slow: found among ranks by equal work, among groups by comparable work, and nobody else; where the
time went, and that lost because a machine's speed changed, by the steps of its networks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aiperf.journal.events import CeilingMeasured, GroupLost, LegEnded, Origin, Stepped
from aiperf.journal.replay import Replay
from aiperf.score.credit import credit
from aiperf.wire.reports import Ceiling, Fallback, Rate
from aiperf.wire.trial import State
from analysis.readings.devices import slow_text
from analysis.readings.disturbance import disturbance_text
from analysis.readings.judgement import Judged, read_run
from analysis.readings.occupancy import PARTS, Occupancy, occupancy
from analysis.readings.outliers import outliers
from analysis.readings.robust import below
from analysis.readings.steadiness import time_lost
from analysis.readings.usage import DeviceUse, Usage
from tests.aiperf.score.test_score import HEAD, Script
from tests.journals import CIFAR, Machine, Scene, of_origin, replayed, resized, told, write_run
from tests.tables import ComesTo


def measured(products: Sequence[float], spread: float = 0.005, copies: Sequence[float] = ()) -> Replay:
    """A run that just began, with these rates of its ranks."""
    found = Replay()
    events = told(Scene(groups=len(products)))
    ready = [(t, event) for t, event in events if t <= 3.0]
    for t, event in ready:
        found.add(t, event)
    for index, product in enumerate(products):
        rank = index + 1
        copy = copies[index] if copies else 1e12
        rates = Rate(product, product, spread), Rate(copy, copy, spread)
        found.add(4.0, CeilingMeasured(Ceiling(rank, f"node{rank}", "NVIDIA H200", "bf16", 8192, *rates)))
    assert not found.faults
    return found


def names(replay: Replay) -> list[str]:
    return [found.who for found in outliers(replay)]


def slow(replay: Replay) -> list[str]:
    return slow_text(outliers(replay), replay)


def test_a_slow_rank_is_named_with_its_host_and_device_and_by_how_much(
    comes_to_what_was_read: ComesTo,
) -> None:
    """Nobody says that nobody was slow where nobody can tell."""
    comes_to_what_was_read("outliers.txt", globals())


def test_ranks_are_compared_with_the_threads_that_all_were_measured_with() -> None:
    """Rank 3 chose one thread and the others two, which is no fault of its device; then rank 4 is slow."""
    replay = measured([200.0, 201.0, 100.0, 202.0])
    ceilings = replay.leg.ceilings

    def with_threads(rank: int, used: int, one: float, two: float) -> None:
        rates = {"1": Rate(one, one, 0.005), "2": Rate(two, two, 0.005)}
        ceilings[rank] = replace(
            ceilings[rank], threads=used, product=rates[str(used)], thread_products=rates
        )

    assert names(replay) == ["rank 3"]
    for rank, used in ((1, 2), (2, 2), (3, 1), (4, 2)):
        with_threads(rank, used, 100.0, 200.0)
    assert names(replay) == []
    with_threads(4, 2, 100.0, 150.0)
    assert names(replay) == ["rank 4"]


def test_a_slow_group_is_named_and_quiet_ones_are_not(tmp_path: Path) -> None:
    """They differ by a per cent; what their trials are differs by much more."""
    quiet, slow = (
        outliers(read_run(write_run(tmp_path / name, resized(CIFAR, 4.0), Machine(groups=6, slow=slow))))
        for name, slow in (("quiet", {}), ("slow", {2: 0.8}))
    )
    assert quiet == ()
    (found,) = slow
    assert (found.who, found.hosts) == ("group 2", ("node0003",))
    assert found.share == pytest.approx(0.8, abs=0.08)
    assert found.when == "between 0:00 and 4:00 of the span"


def test_its_sensors_are_evidence() -> None:
    replay = measured([100.0, 100.0, 70.0, 100.0])
    leg = replay.leg
    for rank, ready in leg.devices.items():
        leg.devices[rank] = replace(ready, device_id=f"GPU-{rank}")
    use = DeviceUse("node1", "GPU-1", 1.0, True, False, 1.9e9, 1e9, 60.0, None, 60.0)
    uses = [replace(use, host=f"node{rank}", device=f"GPU-{rank}") for rank in range(1, 5)]
    uses[2] = replace(uses[2], mean_clock_hertz=1.2e9, throttled_seconds={"temperature": 42.0})
    (found,) = outliers(replay, Usage(tuple(uses), ""))
    assert found.devices == ("NVIDIA H200 GPU-3",)
    assert found.evidence.endswith("; clock 1.200 GHz against 1.900 GHz; held back for 0:42 by: temperature")


@pytest.mark.parametrize("number", [2, 3, 4, 8, 64, 512])
def test_of_few_and_of_many_the_slow_one_alone_is_named(number: int) -> None:
    """Ranks that differ by one per cent, and one that is slower than the median by a tenth. Of two or three
    nobody can say who is odd."""
    rng = random.Random(number)
    for _ in range(50):
        rates = np.array([rng.gauss(100.0, 1.0) for _ in range(number)])
        assert not list(below(np.log(rates), np.full(number, 0.01)))
        rates[number // 2] = 0.9 * np.median(rates)
        named = list(below(np.log(rates), np.full(number, 0.01)))
        assert named in {2: ([],), 3: ([],), 4: ([], [2])}.get(number, ([number // 2],))


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


def seen(replay: Replay) -> Occupancy:
    assert replay.faults == []
    return occupancy(replay, credit(replay))


def test_every_second_has_one_place() -> None:
    """Group 0: 5 s idle, 5 s until its network was ready, 60 s trained, 5 s validated, 25 s to the end.
    Group 1: at work at once, 20 s not credited as it was lost before it validated, gone for 80 s."""
    script = Script(deadline=100.0, groups=2).begin(1, group=1).dispatch(0, t=5.0).start(0, 10.0, built=5.0)
    script.block(1, 20.0, 20.0).add(25.0, GroupLost(1, "silent"))
    script.block(0, 70.0, 60.0).close(0, 75.0, 5.0).end(0, 75.0).add(100.0, LegEnded("deadline", 100.0))
    found = seen(script.replay)
    assert PARTS == ("train", "validate", "prepare", "wait", "lost")
    assert found.seconds.ravel().tolist() == pytest.approx([60, 5, 5, 30, 0, 0, 0, 0, 0, 100])
    assert [*found.shares.values()] == pytest.approx([0.3, 0.025, 0.025, 0.15, 0.5])
    assert [(bar.trial, bar.begin, bar.end, bar.state) for bar in found.bars] == [
        (1, 0.0, 20.0, State.LOST),
        (0, 10.0, 75.0, State.COMPLETE),
    ]
    assert found.lost == ((1, 20.0, 100.0),)


def test_a_network_that_is_ready_early_costs_nothing() -> None:
    """Prepared beside the trial before: what the gap holds is waiting."""
    script = Script(deadline=100.0).begin(0).dispatch(1, t=1.0)
    script.block(0, 40.0, 40.0).close(0, 42.0, 2.0).end(0, 42.0)
    script.start(1, 45.0, built=4.0).block(1, 90.0, 45.0).close(1, 92.0, 2.0).end(1, 92.0)
    found = seen(script.add(100.0, LegEnded("deadline", 100.0)).replay)
    assert found.seconds[0].tolist() == pytest.approx([85, 4, 0, 11, 0])


def test_shares_add_up_to_the_span_and_agree_with_the_score(judged: Judged) -> None:
    """The score's shares hold all work, ours only what was credited: the difference is lost work."""
    found = occupancy(judged.replay, judged.credit)
    assert found.seconds.sum(axis=1) == pytest.approx(found.span_of_group, rel=1e-9)
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert (found.seconds >= -1e-9).all()
    for share in judged.score.shares[:3]:
        train, validate, _, _, lost = found.seconds[share.group] / found.span_of_group[share.group]
        assert train + validate + lost == pytest.approx(share.train + share.validate, abs=1e-9)


def test_a_run_that_has_not_been_released_has_no_time() -> None:
    assert seen(replayed(HEAD[:4])).shares == dict.fromkeys(PARTS, 0.0)


def test_a_second_leg_follows_without_a_gap() -> None:
    script = Script(deadline=100.0, groups=2).begin(0).block(0, 40.0, 40.0).close(0, 50.0, 10.0).end(0, 50.0)
    script.over(60.0, "interrupted")
    script.leg(1, 40.0).begin(1).block(1, 30.0, 30.0).close(1, 35.0, 5.0).end(1, 35.0)
    found = seen(script.over(40.0, "deadline"))
    assert [(bar.begin, bar.end) for bar in found.bars] == [(0.0, 50.0), (60.0, 95.0)]
    assert found.span_of_group.tolist() == [100.0, 60.0]
