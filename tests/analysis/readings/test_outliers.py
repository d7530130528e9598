"""Who is slow: found among ranks by equal work, among groups by comparable work, and nobody else."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aiperf.journal.events import CeilingMeasured
from aiperf.journal.replay import Replay
from aiperf.wire.reports import Ceiling, Rate
from analysis.readings.devices import slow_text
from analysis.readings.judgement import read_run
from analysis.readings.outliers import outliers
from analysis.readings.robust import below
from analysis.readings.usage import DeviceUse, Usage
from tests.journals import CIFAR, Machine, Scene, resized, told, write_run
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
