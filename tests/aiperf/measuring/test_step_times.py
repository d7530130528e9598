"""Steps by every engine, timed on this processor; threads and engine, chosen together by the steps of two
networks, also on a clock of the test's own. One file, since all time the same engines on the same
stand-ins."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter

import pytest
import torch

from aiperf.config import TrainingConfig
from aiperf.device import bind
from aiperf.device.cpu import Cpu
from aiperf.engines.engine import Engine
from aiperf.engines.graphed import WARM_UP_WRAPPED, Graphed
from aiperf.engines.registry import NOTHING_FUSED, OVER_GROUP, refuse_unusable
from aiperf.measuring import network_times, step_times
from aiperf.measuring.before_span import TimedPass
from aiperf.measuring.network_times import Contender, Times, chosen, measure_network, of_typical, time_in_turn
from aiperf.measuring.step_times import StepBench, Timing, measure_steps, shared_times
from aiperf.measuring.training_step import RankWork
from aiperf.parallel.parallel import Parallel, Solo
from aiperf.proposing.engine_choice import Sizes
from aiperf.proposing.thread_choice import LEAST_ROUNDS, Threads, reliability
from aiperf.ranks.process import environment
from aiperf.wire import reports
from aiperf.wire.reports import TYPICAL, Rate, StepTime
from nas.graph import Graph
from nas.seeds import residual
from tests.aiperf.engines.recording import TEXTS, Again, Averaging, Recording, recording
from tests.tables import ComesTo

SEED = residual((1, 8, 8), 3)
WORK = RankWork(SEED, "fp32", 16)
FAST = Rate(1e10, 1e10, 0.0)
AUTO = TrainingConfig("fp32", 16, 0.1, (1,), 64, step="auto")


def timing(training: TrainingConfig = AUTO, parallel: Parallel | None = None, seconds: float = 0.1) -> Timing:
    return Timing(training, 100, inf, parallel or Solo(), seconds)


@pytest.mark.parametrize(
    ("graph", "fused"),
    [(SEED, ("fused", "fused-graphed")), (TEXTS["llama"], ("fused", "fused-graphed")), (TEXTS["gpt"], ())],
    ids=["images", "llama", "gpt"],
)
def test_engines_are_timed_and_the_others_have_a_reason(graph: Graph, fused: Sequence[str]) -> None:
    """`training.step = auto`: layer norms have no fused step."""
    times = measure_steps(recording(), RankWork(graph, "fp32", 4), FAST, timing(seconds=0.2))
    assert {name for name, time in times.items() if 0 < time.seconds < 1} == {"eager", "graphed", *fused}
    assert {name for name, time in times.items() if time.prepare_seconds} == {"graphed", *fused[1:]}
    assert times["fused"].why_not == ("" if fused else NOTHING_FUSED)
    assert times["compiled"].why_not.startswith("no trial is long enough to compile for")


def test_an_engine_that_makes_another_step_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "the loss is 2 instead of 1"
    monkeypatch.setattr(step_times, "prepare_and_check", lambda kind, eager, *others: (eager, reason))
    found = measure_steps(recording(), WORK, FAST, timing())["graphed"]
    assert (found.seconds, found.why_not) == (0.0, reason)


def test_only_the_engine_that_the_configuration_names_is_timed_beside_the_eager_one() -> None:
    only = replace(AUTO, step="graphed")
    assert list(measure_steps(recording(), WORK, FAST, timing(only))) == ["eager", "graphed"]


def test_a_seed_of_which_no_step_fits_is_not_timed() -> None:
    assert measure_steps(recording(), WORK, None, timing()) == {}
    assert measure_steps(recording(), WORK, Rate(10.0, 10.0, 0.0), timing()) == {}


class Two(Solo):
    """Two ranks, of which the other measures this of what this one does; the same, unless it is said."""

    ranks = 2

    def __init__(self, other: Callable[[tuple[int, ...]], tuple[int, ...]] = lambda own: own) -> None:
        self.other = other

    def total(self, *numbers: int) -> tuple[int, ...]:
        own = numbers[: len(numbers) // 2]
        return own + self.other(own)


def test_a_group_has_one_time_and_uses_what_all_can() -> None:
    """The other takes three times as long, and cannot use what is last."""
    group = Two(lambda own: (*(3 * number for number in own[:-3]), 0, 0, 0))
    own = {"eager": StepTime(1.0, error=0.01), "graphed": StepTime(0.5, 2.0), "compiled": StepTime(0.25, 9.0)}
    assert shared_times(own, 2.0, group) == {
        "eager": StepTime(6.0, error=0.03),
        "graphed": StepTime(3.0, 6.0),
        "compiled": StepTime(0.0, 9.0, "another rank cannot use it"),
    }
    assert shared_times(own, 1.0, Solo()) == own


class Accelerated(Recording):
    """A device that is not a CPU."""

    threads = 0


class Wrapping(Two):
    """Two ranks that average their gradients by a wrapped network."""

    wraps_network = True
    wrapped: list[Averaging]

    def total(self, *numbers: int) -> tuple[int, ...]:
        return numbers if len(numbers) == 1 else super().total(*numbers)

    def wrap(
        self, network: torch.nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        self.wrapped = [Averaging(network)]
        return self.wrapped[0], optimizer


@pytest.mark.parametrize("fails", [False, True])
def test_a_group_times_the_captured_steps_that_it_would_make(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all-reduce: here a capture of the hooks may fail (pytorch/pytorch 164302), and one of a rank that
    is alone does not."""

    def capture_hooks(self: Graphed) -> None:
        raise RuntimeError("operation would make the legacy stream depend on a capturing blocking stream")

    group, cpu = Wrapping(), recording()
    if fails:
        monkeypatch.setattr(Graphed, "_with_hooks", capture_hooks)
        monkeypatch.setattr(Again, "record", lambda self, work: work())
        monkeypatch.setattr(Again, "replay", lambda self: None)
    device = Accelerated(cpu.index, cpu.name, cpu.memory_bytes)
    found = measure_steps(device, WORK, FAST, timing(replace(AUTO, step="graphed"), group))["graphed"]
    assert group.wrapped[0].heard >= WARM_UP_WRAPPED * len(list(group.wrapped[0].network.parameters()))
    assert (found.seconds > 0) == (not fails)
    assert found.why_not.startswith("RuntimeError: operation would make" if fails else "")


class Fuller(Wrapping):
    """The other rank has no memory beside what it has timed alone."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def total(self, *numbers: int) -> tuple[int, ...]:
        self.asked += len(numbers) == 1
        return (1,) if (self.asked, len(numbers)) == (3, 1) else super().total(*numbers)


@pytest.mark.parametrize("group", [Solo(), Wrapping(), Fuller()], ids=["alone", "a group", "a fuller one"])
def test_an_accelerator_has_memory_for_one_step_at_a_time(
    group: Parallel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A captured step keeps its memory, here for half the batch; an engine that lacks it has a reason."""
    cpu, step = recording(), StepBench.seconds
    device = Accelerated(cpu.index, cpu.name, cpu.memory_bytes)

    def seconds(bench: StepBench, engine: Engine) -> float:
        steps = sum(each.work is not None for each in device.captured) + (not isinstance(engine, Graphed))
        if steps > 1 or len(bench.labels) > WORK.batch_size // 2 or engine.name == "fused-graphed":
            raise torch.OutOfMemoryError
        return step(bench, engine)

    monkeypatch.setattr(StepBench, "seconds", seconds)
    found = measure_steps(device, WORK, FAST, timing(parallel=group))
    lacking = {name for name, time in found.items() if time.why_not == step_times.NO_ROOM}
    assert lacking == {"fused-graphed", *(["graphed"] if isinstance(group, Fuller) else [])}
    assert {name for name, time in found.items() if not time.seconds} - {"compiled"} == lacking


def test_a_group_that_normalises_over_its_ranks_is_eager() -> None:
    over = replace(AUTO, batch_norm="synchronised")
    found = measure_steps(recording(), WORK, FAST, timing(over, Two()))
    assert {name for name, time in found.items() if time.seconds > 0} == {"eager"}
    assert {time.why_not for name, time in found.items() if name != "eager"} == {OVER_GROUP}
    assert measure_steps(recording(), WORK, FAST, timing(over))["graphed"].seconds > 0


def test_who_names_an_engine_that_a_group_cannot_use_is_told(comes_to_what_was_read: ComesTo) -> None:
    graphed = replace(AUTO, step="graphed", batch_norm="synchronised")
    names = {"refuse": refuse_unusable, "replace": replace, "graphed": graphed, "CPU": bind("cpu", 0)}
    comes_to_what_was_read("refused_engines.txt", {**names, "SEED": SEED, "DEVICE": recording()})


def test_no_rank_measures_what_another_cannot() -> None:
    """It would wait for that one's times for ever."""
    assert measure_steps(recording(), WORK, FAST, timing(parallel=Two(lambda own: (0,) * len(own)))) == {}


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


Seconds = Mapping[tuple[str, int, str], float]
"""Time of a step by network, number of threads and engine."""


class Contest:
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
        (reports.SEED, 1, "eager"): seed,
        (reports.SEED, 1, "fused"): 0.7 * seed,
        (TYPICAL, 2, "eager"): typical * gain,
        (TYPICAL, 2, "fused"): 0.7 * typical * second,
        (reports.SEED, 2, "eager"): seed * gain,
        (reports.SEED, 2, "fused"): 0.7 * seed,
    }


def eager(seconds: Mapping[int, float]) -> Seconds:
    return {(TYPICAL, count, "eager"): took for count, took in seconds.items()}


@pytest.mark.parametrize("factors", [(1.0,), (1.0, 1.0, 1.0, 3.0, 1.0, 1.1, 1.0)], ids=["alone", "disturbed"])
def test_threads_and_engine_are_chosen_together(
    monkeypatch: pytest.MonkeyPatch, factors: Sequence[float], comes_to_what_was_read: ComesTo
) -> None:
    """Whatever other programs take now and then."""

    def pair(seconds: Seconds) -> tuple[int, str] | None:
        cores = Contest(seconds, factors)
        times = cores.timed(monkeypatch, 4.0)
        counts = list(dict.fromkeys(contender.threads for contender in cores.steps))
        assert counts == sorted(counts), "the fewest first"
        return chosen(times)

    comes_to_what_was_read("chosen_threads.txt", {"pair": pair, "eager": eager, "both": both})


def test_a_choice_without_doubt_takes_ten_rounds_and_one_to_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = Contest(seconds := both(0.016, 0.0436, 1.0, 1.2))
    times = cores.timed(monkeypatch, 4.0)
    assert cores.now == pytest.approx(11 * sum(seconds.values()))
    assert reliability(of_typical(times)) == (1.0, 1.0)


def test_what_is_hopeless_is_not_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all cores of a processor that another program uses a step takes a hundred times as long: one such
    step is made, and neither the other engine nor the other network is tried with these threads."""
    seconds = dict(both(0.02, 0.04, 100.0, 100.0))
    cores = Contest(seconds)
    times = cores.timed(monkeypatch, 1.0)
    assert [each for each in cores.steps if each.threads == 2] == [Contender(TYPICAL, 2, "eager")]
    assert len(times[Contender(TYPICAL, 1, "fused")]) >= 5
    assert chosen(times) == (1, "fused")
    assert reliability(of_typical(times))[0] == 1.0


def test_what_falls_behind_leaves_its_time_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fused steps with two and with three threads are equally fast, but for noise."""
    rng = random.Random(1)
    close = {(TYPICAL, 1, "fused"): 0.1, (TYPICAL, 2, "fused"): 0.0465, (TYPICAL, 3, "fused"): 0.0488}
    cores = Contest(close, [rng.gauss(1, 0.05) for _ in range(997)])
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
