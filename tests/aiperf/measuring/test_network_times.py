"""Threads and engine, chosen together by the steps of two networks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from time import perf_counter

import pytest

from aiperf.device.cpu import Cpu
from aiperf.engines.engine import Engine
from aiperf.measuring import network_times
from aiperf.measuring.before_span import TimedPass
from aiperf.measuring.network_times import measure_network
from aiperf.measuring.step_times import StepBench
from aiperf.parallel.parallel import Parallel, Solo
from aiperf.proposing.engine_choice import Sizes
from aiperf.proposing.thread_choice import LEAST_ROUNDS, Threads
from nas.seeds import residual
from tests.aiperf.measuring.test_step_times import SEED, WORK, Two, timing


@dataclass(frozen=True)
class Cores(Cpu):
    """A processor of two cores, of which the tests' own one does the work."""

    used: list[int] = field(default_factory=lambda: [2])

    @property
    def thread_counts(self) -> tuple[int, ...]:
        return tuple(range(1, self.threads + 1))  # as torch answers, which was told to use fewer

    @property
    def threads(self) -> int:
        return self.used[-1]

    def use_threads(self, count: int) -> None:
        self.used.append(count)


MILLISECONDS = {
    ("seed", "eager"): (4.0, 5.0),
    ("seed", "fused"): (2.0, 2.6),
    ("typical", "eager"): (20.0, 22.0),
    ("typical", "fused"): (12.0, 9.0),
}
"""Times of a step with one and two threads, of half of the run's batch."""
GROWN = residual((1, 8, 8), 3, (8, 16, 32))


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> Cores:
    found = Cores(0, "two cores", 1 << 30)

    def seconds(bench: StepBench, engine: Engine) -> float:
        network = "seed" if engine.passes.network.graph.key == SEED.key else "typical"
        return MILLISECONDS[network, engine.name][found.threads - 1] / 1000

    monkeypatch.setattr(StepBench, "seconds", seconds)
    monkeypatch.setattr(
        network_times, "largest_batch", lambda *words: TimedPass(lambda: None, WORK.batch_size // 2, 0.02)
    )
    return found


@pytest.mark.parametrize("parallel", [Solo(), Two()], ids=["alone", "a group"])
def test_threads_and_engine_are_those_of_the_grown_network_and_the_seed_is_timed_too(
    cores: Cores, parallel: Parallel
) -> None:
    """Eager steps alone, or the seed alone, would have chosen one thread."""
    work = replace(WORK, network=GROWN)
    found = measure_network(cores, work, SEED, 1e9, 2.0, timing(parallel=parallel))
    assert cores.threads == 2
    assert (found.thread_seconds, found.share) == ({1: 0.024, 2: 0.018}, 1.0)
    assert {(of.network, of.engine, of.threads): of.seconds for of in found.timed} == {
        (*key, count): pytest.approx(2 * ms / 1000)
        for key, both in MILLISECONDS.items()
        for count, ms in enumerate(both, 1)
    }
    assert {name: time.seconds for name, time in found.steps.items()} == pytest.approx(
        {"eager": 0.04, "fused": 0.018, "graphed": 0.0, "fused-graphed": 0.0, "compiled": 0.0}
    )
    assert found.steps["compiled"].why_not.startswith("no trial is long enough to compile for")
    assert {name: time.seconds for name, time in found.seed_steps.items() if time.seconds} == pytest.approx(
        {"eager": 0.008, "fused": 0.004}
    )
    assert found.rate is not None
    assert found.rate.typical == pytest.approx(work.operations(8) / 0.022)
    threads = Threads(found.timed, Sizes(SEED, GROWN, 16).seed_size)
    assert [threads.count("fused", size) for size in (threads.seed_size, 1.0)] == [1, 2]


def test_without_engines_the_threads_are_those_of_eager_steps(cores: Cores) -> None:
    found = measure_network(cores, replace(WORK, network=GROWN), SEED, 1e9, 2.0)
    assert (cores.threads, found.steps, found.seed_steps) == (1, {}, {})
    assert {of.engine for of in found.timed} == {"eager"}


def test_threads_are_chosen_by_what_fits_if_no_step_does(
    cores: Cores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_times, "largest_batch", lambda *words: None)
    monkeypatch.setattr(network_times, "network_rate", lambda *words: None)
    found = measure_network(cores, replace(WORK, network=GROWN), SEED, 1e9, 0.05, timing())
    assert (found.rate, found.timed, found.steps) == (None, (), {})
    assert found.thread_seconds.keys() == {1, 2}
    assert cores.threads in (1, 2)


def test_a_slow_first_pass_takes_no_time_from_the_choice(
    cores: Cores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that reads its libraries for the first time: finding the batch takes a minute."""
    late = [0.0]

    def largest_batch(*words: object) -> TimedPass:
        late.append(60.0)
        return TimedPass(lambda: None, WORK.batch_size // 2, 0.02)

    monkeypatch.setattr(network_times, "largest_batch", largest_batch)
    monkeypatch.setattr(network_times, "perf_counter", lambda: perf_counter() + late[-1])
    found = measure_network(cores, replace(WORK, network=GROWN), SEED, 1e9, 2.0, timing())
    assert cores.threads == 2
    assert min(of.rounds for of in found.timed) >= LEAST_ROUNDS
