"""How many threads, and by which engine: on a clock of the test's own, and on this processor."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest
import torch

from aiperf.device import bind
from aiperf.measuring import network_times
from aiperf.measuring.network_times import Contender, Times, chosen, of_typical, time_in_turn
from aiperf.proposing.thread_choice import reliability
from aiperf.ranks.process import environment
from aiperf.wire.reports import SEED, TYPICAL
from tests.tables import ComesTo

Seconds = Mapping[tuple[str, int, str], float]
"""Time of a step by network, number of threads and engine."""


class Cores:
    """A device on which a step takes the time of its contender, and sometimes longer."""

    def __init__(self, seconds: Seconds, factors: Sequence[float] = (1.0,)) -> None:
        self.seconds, self.now, self.steps = seconds, 0.0, list[Contender]()
        self.factors = factors

    def step(self, contender: Contender) -> float:
        place = len(self.steps)
        took = self.seconds[contender.network, contender.threads, contender.engine]
        took *= self.factors[place % len(self.factors)]
        self.steps.append(contender)
        self.now += took
        return took

    def timed(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> Times:
        monkeypatch.setattr(network_times, "perf_counter", lambda: self.now)
        return time_in_turn([Contender(*each) for each in self.seconds], self.step, seconds)


def both(seed: float, typical: float, gain: float, second: float) -> Seconds:
    """Times with one thread of eager steps, `gain` times as many with a second thread, and fused steps that
    take 0.7 times as long, which gain `second` of the typical network."""
    return {
        (TYPICAL, 1, "eager"): typical,
        (TYPICAL, 1, "fused"): 0.7 * typical,
        (SEED, 1, "eager"): seed,
        (SEED, 1, "fused"): 0.7 * seed,
        (TYPICAL, 2, "eager"): typical * gain,
        (TYPICAL, 2, "fused"): 0.7 * typical * second,
        (SEED, 2, "eager"): seed * gain,
        (SEED, 2, "fused"): 0.7 * seed,
    }


def eager(seconds: Mapping[int, float]) -> Seconds:
    return {(TYPICAL, count, "eager"): took for count, took in seconds.items()}


@pytest.mark.parametrize("factors", [(1.0,), (1.0, 1.0, 1.0, 3.0, 1.0, 1.1, 1.0)], ids=["alone", "disturbed"])
def test_threads_and_engine_are_chosen_together(
    monkeypatch: pytest.MonkeyPatch, factors: Sequence[float], comes_to_what_was_read: ComesTo
) -> None:
    """Whatever other programs take now and then."""

    def pair(seconds: Seconds) -> tuple[int, str] | None:
        cores = Cores(seconds, factors)
        times = cores.timed(monkeypatch, 4.0)
        counts = list(dict.fromkeys(contender.threads for contender in cores.steps))
        assert counts == sorted(counts), "the fewest first"
        return chosen(times)

    comes_to_what_was_read("chosen_threads.txt", {"pair": pair, "eager": eager, "both": both})


def test_a_choice_without_doubt_takes_ten_rounds_and_one_to_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = Cores(seconds := both(0.016, 0.0436, 1.0, 1.2))
    times = cores.timed(monkeypatch, 4.0)
    assert cores.now == pytest.approx(11 * sum(seconds.values()))
    assert reliability(of_typical(times)) == (1.0, 1.0)


def test_what_is_hopeless_is_not_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all cores of a processor that another program uses a step takes a hundred times as long: one such
    step is made, and neither the other engine nor the other network is tried with these threads."""
    seconds = dict(both(0.02, 0.04, 100.0, 100.0))
    cores = Cores(seconds)
    times = cores.timed(monkeypatch, 1.0)
    assert [each for each in cores.steps if each.threads == 2] == [Contender(TYPICAL, 2, "eager")]
    assert len(times[Contender(TYPICAL, 1, "fused")]) >= 5
    assert chosen(times) == (1, "fused")
    assert reliability(of_typical(times))[0] == 1.0


def test_what_falls_behind_leaves_its_time_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fused steps with two and with three threads are equally fast, but for noise."""
    rng = random.Random(1)
    close = {(TYPICAL, 1, "fused"): 0.1, (TYPICAL, 2, "fused"): 0.0465, (TYPICAL, 3, "fused"): 0.0488}
    cores = Cores(close, [rng.gauss(1, 0.05) for _ in range(997)])
    rounds = {each.threads: len(took) for each, took in cores.timed(monkeypatch, 6.0).items()}
    assert rounds[1] == 5
    assert rounds[2] == rounds[3] > 20
    assert cores.now < 6.0


def test_a_processor_offers_all_its_cores_one_less_and_halves_unless_somebody_chose(
    monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """What OpenMP ignores is no choice."""

    def offers(torch_uses: int, **chosen: str) -> tuple[int, ...]:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        for name, value in chosen.items():
            monkeypatch.setenv(name, value)
        device = bind("cpu", 0)
        torch.set_num_threads(torch_uses)
        counts = device.thread_counts
        device.use_threads(1)
        assert device.threads == 1
        return counts

    before = torch.get_num_threads()
    comes_to_what_was_read("offered_threads.txt", {"offers": offers})
    torch.set_num_threads(before)


def test_waiting_threads_soon_sleep_unless_somebody_chose() -> None:
    assert environment({"PATH": "/bin"}) == {"PATH": "/bin", "GOMP_SPINCOUNT": "1000"}
    assert environment({"OMP_WAIT_POLICY": "active"}) == {"OMP_WAIT_POLICY": "active"}
