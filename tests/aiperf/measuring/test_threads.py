"""How many threads: on a clock of the test's own, and on this processor."""

from __future__ import annotations

import random
from collections.abc import Mapping
from statistics import fmean

import pytest
import torch

from aiperf.device import bind
from aiperf.measuring import threads
from aiperf.measuring.threads import SURE, ThreadChoice, choice_of, choose_threads
from aiperf.ranks.process import environment


class Cores:
    """A device on which a step takes the time of its number of threads."""

    kind = "cpu"

    def __init__(self, seconds: Mapping[int, float]) -> None:
        self.seconds, self.now, self.used = seconds, 0.0, list[int]()

    def use_threads(self, count: int) -> None:
        self.used.append(count)

    def step(self) -> None:
        self.now += self.seconds[self.used[-1]]


@pytest.mark.parametrize(
    ("seconds", "count"),
    [
        ({1: 0.08, 2: 0.04, 4: 0.02}, 4),
        ({1: 0.03, 3: 0.02, 4: 2.0}, 3),  # one core is somebody else's
        ({1: 0.021, 2: 0.02}, 1),  # nearly as fast: fewer lose less when others come
    ],
)
def test_the_fewest_that_are_nearly_the_fastest(
    monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float], count: int
) -> None:
    cores = Cores(seconds)
    monkeypatch.setattr(threads, "perf_counter", lambda: cores.now)
    found = choose_threads(cores, tuple(seconds), cores.step, 20.0)  # type: ignore[arg-type]
    assert found.seconds == pytest.approx(seconds)
    assert (found.count, found.share) == (count, 1.0)
    assert cores.used[-1] == count
    assert cores.used[0] == min(seconds), "the fewest first"
    assert cores.now == pytest.approx(6 * sum(seconds.values())), "one to warm up; five rounds leave no doubt"


def test_a_choice_is_made_again_as_often_as_it_says() -> None:
    """By 400 processors, with 2 threads up to 40 % faster than 1, each measured twice with a noise of 5 %."""
    rng = random.Random(1)

    def measured(ratio: float) -> ThreadChoice:
        rounds = {1: ratio, 2: 1.0}
        return choice_of(
            {count: [time * rng.gauss(1, 0.05) for _ in range(10)] for count, time in rounds.items()}
        )

    twice = [(measured(1 + place / 1000), measured(1 + place / 1000)) for place in range(400)]
    alike = [first.count == again.count for first, again in twice]
    said = [first.share for first, _ in twice]
    assert fmean(alike) == pytest.approx(fmean(said), abs=0.03)
    sure = [same for same, share in zip(alike, said) if share >= SURE]
    assert len(sure) > 200
    assert fmean(sure) > 0.98
    assert fmean(same for same, share in zip(alike, said) if share < 0.8) < 0.8


def test_nothing_is_known_of_how_sure_one_round_is() -> None:
    choice = choice_of({1: [1.2], 2: [1.0]})
    assert (choice.count, choice.share) == (2, 0.0)


@pytest.mark.parametrize(
    ("value", "torch_uses", "counts"),
    [
        ("1", 2, ()),
        *((ignored, 2, (1, 2)) for ignored in ("0", "abc", "", "-1")),
        (None, 6, (1, 3, 5, 6)),
    ],
)
def test_a_processor_offers_all_its_cores_one_less_and_halves_unless_somebody_chose(
    monkeypatch: pytest.MonkeyPatch, value: str | None, torch_uses: int, counts: tuple[int, ...]
) -> None:
    """What OpenMP ignores is no choice."""
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS")
    if value is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", value)
    try:
        device = bind("cpu", 0)
        torch.set_num_threads(torch_uses)
        assert device.thread_counts == counts
        device.use_threads(1)
        assert device.threads == 1
    finally:
        torch.set_num_threads(before)


def test_waiting_threads_soon_sleep_unless_somebody_chose() -> None:
    assert environment({"PATH": "/bin"}) == {"PATH": "/bin", "GOMP_SPINCOUNT": "1000"}
    assert environment({"OMP_WAIT_POLICY": "active"}) == {"OMP_WAIT_POLICY": "active"}
