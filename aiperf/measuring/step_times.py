"""Times of the training step with every engine and number of threads that the device can use, measured before
the span.

On a CPU that has a choice, all of these are timed together, on the seed and on the run's typical network, in
the same rounds: threads that are best for eager steps need not be best for fused ones, nor those of a small
network for a large one. Otherwise the engines are timed on the typical network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import median
from time import perf_counter

import torch

from aiperf.config import AUTO_STEP, LEAST_BATCH, TrainingConfig
from aiperf.device import Device
from aiperf.engines.agreement import prepare_and_check, prepare_only
from aiperf.engines.engine import Engine, Passes, unchanged
from aiperf.engines.registry import KINDS, why_not
from aiperf.measuring.before_span import (
    CLIMBING,
    SLOWER,
    NetworkTimes,
    RankWork,
    Timed,
    largest_batch,
    network_rate,
)
from aiperf.measuring.ceiling import Multiply, rate_of
from aiperf.measuring.threads import Candidate, Times, chosen, of_typical, time_in_turn
from aiperf.measuring.training_step import batch, place_network
from aiperf.parallel.parallel import Parallel, Solo, everyone
from aiperf.proposing.engine_choice import Expected, Sizes, choose
from aiperf.proposing.thread_choice import LEAST_ROUNDS, Threads, fewest_near_best, reliability
from aiperf.wire.messages import SEED, TYPICAL, Rate, StepTime, TimedStep
from nas.graph import Graph

ROUNDS = (5, 20)
"""Minimum and maximum number of timed steps of each engine without a choice of threads; the engines take
turns."""
WARM_UP = 2
"""Steps of each candidate in addition to LEAST_ROUNDS that must fit into the time: those before the first
round."""
SMALL = 256
"""Side of the square product by which numbers of threads are compared if one pass of the network takes too
long."""
LONG_TRIAL_SECONDS = 600.0
"""Duration that the longest trial must have for compilation to be tried on a CPU, where it takes minutes."""
COMPILED = "compiled"
NANO = 1e9
"""Nanoseconds per second: a group sums whole numbers, because only these sums are exact on any device."""


@dataclass(frozen=True)
class Longest:
    """Upper bounds on the longest trial of a run."""

    steps: int
    seconds: float
    """Length of the span in seconds; infinite without a time limit."""


@dataclass(frozen=True)
class Asked:
    """The engines that are timed: the eager one and the one that `training.step` names, or all engines if it
    is auto."""

    training: TrainingConfig
    longest: Longest
    parallel: Parallel
    seconds: float
    """Time for their steps, in addition to that for the network's passes, once the engines are prepared."""

    @property
    def names(self) -> tuple[str, ...]:
        step = self.training.step
        return tuple(name for name in KINDS if name == Engine.name or step in (AUTO_STEP, name))


@dataclass(frozen=True)
class _Candidate:
    engine: Engine
    prepare_seconds: float
    why_not: str = ""


@dataclass(frozen=True)
class _Bench:
    """A network with a batch, on which engines are timed."""

    eager: Engine
    examples: torch.Tensor
    labels: torch.Tensor

    def seconds(self, engine: Engine) -> float:
        """Time of one step, which leaves the network as it was."""
        device = engine.passes.device
        with unchanged(engine.passes):
            device.synchronise()
            began = perf_counter()
            engine.step(self.examples, self.labels)
            device.synchronise()
            return perf_counter() - began


def measure_network(
    device: Device, work: RankWork, seed: Graph, rate: float, seconds: float, asked: Asked | None = None
) -> NetworkTimes:
    """Measures the steps of the typical network `work` and of the seed, and uses the best number of threads
    from now on. It takes about `seconds`, and those of `asked`. If engines are asked for, all ranks of a
    group must call it at once.

    `rate` is that of a small product on one thread in operations per second, by which the time of the first
    pass is estimated. If a step takes too long on some rank, all ranks time a smaller batch; if even the
    smallest takes too long, no engines are timed, and the number of threads is chosen by small products. An
    engine whose step differs from the eager one's is not timed.
    """
    device.declare(work.format)
    if len(device.thread_counts) > 1:
        return _with_threads(device, work, seed, rate, seconds, asked)
    found = network_rate(device, work, rate, seconds)
    steps = measure_steps(device, work, found, asked) if asked else {}
    if asked and steps:  # another rank may have a choice of threads, and shares its times of the seed
        shared({name: StepTime(0.0) for name in asked.names}, 1.0, asked.parallel)
    return NetworkTimes(found, steps=steps)


def examples_per_second(device: Device, work: RankWork, rate: float, seconds: float) -> tuple[float, bool]:
    """The training rate of one device, measured in about `seconds`, and whether it was measured. If one pass
    takes longer, it is estimated from `rate`, that of a small product on one thread in operations per
    second."""
    found = measure_network(device, work, work.network, rate, seconds).rate
    operations = found.typical if found else rate / SLOWER
    return operations / work.operations(1), found is not None


def measure_steps(device: Device, work: RankWork, rate: Rate | None, asked: Asked) -> Mapping[str, StepTime]:
    """Step times by engine with the threads in use; `rate` is that of the network. The result is empty if
    even the smallest batch takes too long."""
    least = ROUNDS[0] * len(KINDS) * work.operations(1)
    fitting = _agreed(asked.seconds * rate.typical / least if rate else 0, work, asked)
    if not fitting:
        return {}
    bench = _bench(device, work.network, work.format, fitting)
    candidates = _candidates(bench, work, asked, asked.names)
    times = _in_turn(bench, candidates, asked.seconds)
    return shared(_step_times(candidates, times), work.batch_size / fitting, asked.parallel)


def _with_threads(
    device: Device, work: RankWork, seed: Graph, rate: float, seconds: float, asked: Asked | None
) -> NetworkTimes:
    counts, seconds = device.thread_counts, seconds + (asked.seconds if asked else 0.0)
    until = perf_counter() + seconds
    device.use_threads(counts[0])
    largest = largest_batch(device, work, rate, CLIMBING * seconds)
    size = Sizes(seed, work.network, work.batch_size).seed_size
    names = [name for name in (asked.names if asked else (Engine.name,)) if not KINDS[name].is_made_anew]
    own = 0.0
    if largest:
        each = len(names) * sum(1 / count for count in counts) * (1 + (size if size < 1 else 0))
        one = largest.seconds / largest.batch_size
        own = min(largest.batch_size, (until - perf_counter()) / ((LEAST_ROUNDS + WARM_UP) * each * one))
    left = until - perf_counter()
    if fitting := _agreed(own, work, asked):
        return _jointly(device, counts, work, seed, names, fitting, left, asked)
    return _by_pieces(device, counts, work, rate, largest, left)


def _agreed(own: float, work: RankWork, asked: Asked | None) -> int:
    """Batch size that all ranks of the group time, at most `own`; 0 if the smallest is too large for one."""
    fitting = min(int(own), work.batch_size)
    if asked:
        (fitting,) = min(everyone(asked.parallel, fitting))
    return fitting if fitting >= min(LEAST_BATCH, work.batch_size) else 0


def _by_pieces(
    device: Device, counts: Sequence[int], work: RankWork, rate: float, largest: Timed | None, seconds: float
) -> NetworkTimes:
    """The number of threads that is best for the largest batch that fits, or for small products if none
    does."""
    until = perf_counter() + seconds
    once = largest.once if largest else Multiply(device, work.format, SMALL, SMALL, SMALL)

    def step(candidate: Candidate) -> float:
        device.use_threads(candidate.threads)
        began = perf_counter()
        once()
        return perf_counter() - began

    candidates = [Candidate(TYPICAL, count, Engine.name) for count in counts]
    times = time_in_turn(candidates, step, seconds if largest else (1 - CLIMBING) * seconds, least=1)
    count, _ = chosen(times)
    device.use_threads(count)
    if largest:
        operations = work.operations(largest.batch_size)
        took = times[Candidate(TYPICAL, count, Engine.name)]
        found: Rate | None = rate_of([operations / each for each in took])
    else:
        found = network_rate(device, work, rate, until - perf_counter())
    medians = {candidate.threads: median(each) for candidate, each in times.items()}
    return NetworkTimes(found, medians, reliability(of_typical(times))[0])


def _jointly(
    device: Device,
    counts: Sequence[int],
    work: RankWork,
    seed: Graph,
    names: Sequence[str],
    num_examples: int,
    seconds: float,
    asked: Asked | None,
) -> NetworkTimes:
    """Times steps of `num_examples` with all numbers of threads, with the engines that are not made for each
    network anew, on both networks; then the other engines, with the number of threads that was best."""
    sizes = Sizes(seed, work.network, work.batch_size)
    typical = _bench(device, work.network, work.format, num_examples)
    candidates = _candidates(typical, work, asked, names)
    usable = {name: each.engine for name, each in candidates.items() if not each.why_not}
    benches, engines = {TYPICAL: typical}, {TYPICAL: usable}
    if sizes.seed_size < 1:
        benches[SEED] = _bench(device, seed, work.format, num_examples)
        engines[SEED] = _unchecked(benches[SEED], usable)

    def step(candidate: Candidate) -> float:
        device.use_threads(candidate.threads)
        return benches[candidate.network].seconds(engines[candidate.network][candidate.engine])

    times = time_in_turn(
        [
            Candidate(network, count, name)
            for count in counts
            for network, each in engines.items()
            for name in each
        ],
        step,
        seconds,
    )
    for network in engines.values():
        for made in network.values():
            made.release()
    larger = work.batch_size / num_examples
    timed = tuple(
        TimedStep(of.network, of.threads, of.engine, larger * median(each), len(each))
        for of, each in times.items()
    )
    threads, engine = Threads(timed, sizes.seed_size), chosen(times)[1]
    steps, seed_steps = dict[str, StepTime](), dict[str, StepTime]()
    if asked:
        own = _step_times(candidates, _at_best_threads(times, TYPICAL))
        device.use_threads(threads.count(Engine.name, 1.0) or device.threads)
        own |= _made_anew(typical, work, asked, own)
        seeds = _step_times(candidates, _at_best_threads(times, SEED))
        steps, seed_steps = (
            shared({name: each.get(name, StepTime(0.0)) for name in asked.names}, larger, asked.parallel)
            for each in (own, seeds)
        )
        longest = Expected(asked.longest.steps, 1.0, 1.0, asked.longest.seconds)
        engine, _ = choose(asked.training.step, steps, longest)
    count = threads.count(engine, 1.0) or device.threads
    device.use_threads(count)
    by_threads = {**threads.seconds(Engine.name, 1.0), **threads.seconds(engine, 1.0)}
    raced = engine if threads.seconds(engine, 1.0) else Engine.name
    of_engine = {pair: each for pair, each in of_typical(times).items() if pair[1] == raced}
    operations, eager = work.operations(num_examples), times[Candidate(TYPICAL, count, Engine.name)]
    rate = rate_of([operations / took for took in eager])
    seed_steps = seed_steps if any(time.seconds > 0 for time in seed_steps.values()) else {}
    return NetworkTimes(rate, by_threads, reliability(of_engine)[0], timed, steps, seed_steps)


def _at_best_threads(times: Times, network: str) -> Mapping[str, Sequence[float]]:
    """The times of each engine with the number of threads that is best for it, on one network."""
    found: dict[str, dict[int, Sequence[float]]] = {}
    for of, each in times.items():
        if of.network == network:
            found.setdefault(of.engine, {})[of.threads] = each
    return {
        name: each[fewest_near_best({count: median(took) for count, took in each.items()})]
        for name, each in found.items()
    }


def _made_anew(
    bench: _Bench, work: RankWork, asked: Asked, timed: Mapping[str, StepTime]
) -> dict[str, StepTime]:
    """Step times of the engines that were not timed, with the threads in use. They are compared with eager
    steps that are timed in the same rounds."""
    names = [name for name in asked.names if name not in timed]
    candidates = _candidates(bench, work, asked, names)
    if all(each.why_not for each in candidates.values()):
        return _step_times(candidates, {})
    eager = {Engine.name: _Candidate(bench.eager, 0.0)}
    found = _step_times(eager | candidates, _in_turn(bench, eager | candidates, asked.seconds))
    slower = timed[Engine.name].seconds / found[Engine.name].seconds
    return {name: replace(found[name], seconds=slower * found[name].seconds) for name in names}


def _bench(device: Device, graph: Graph, format: str, num_examples: int) -> _Bench:
    examples, labels = batch(graph, device, num_examples)
    scaler = torch.amp.GradScaler(device.kind, enabled=format == "fp16")
    bench = _Bench(Engine(Passes(place_network(graph, device), device, format, scaler)), examples, labels)
    bench.seconds(bench.eager)  # the first step also loads libraries and chooses kernels
    return bench


def _candidates(
    bench: _Bench, work: RankWork, asked: Asked | None, names: Sequence[str]
) -> dict[str, _Candidate]:
    """The engines of these names, prepared, or the reasons why they cannot be used."""
    found = {}
    for name in names:
        reason = _reason(name, bench, work, asked) if asked and name != Engine.name else ""
        if reason or name == Engine.name:
            found[name] = _Candidate(bench.eager, 0.0, reason)
        else:
            found[name] = _prepared(name, bench.eager, bench.examples, bench.labels)
    return found


def _reason(name: str, bench: _Bench, work: RankWork, asked: Asked) -> str:
    """Why an engine is not prepared; empty if it is."""
    training, device = asked.training, bench.eager.passes.device
    if reason := why_not(name, work.network, device, training, asked.parallel.ranks):
        return reason
    if training.step != AUTO_STEP or name != COMPILED or device.kind != "cpu":
        return ""
    eager = bench.seconds(bench.eager) * work.batch_size / len(bench.examples)
    expected = min(asked.longest.steps * eager, asked.longest.seconds)
    if expected < LONG_TRIAL_SECONDS:
        return f"no trial is long enough to compile for: {expected:.0f} s at most"
    return ""


def _unchecked(bench: _Bench, usable: Mapping[str, Engine]) -> dict[str, Engine]:
    """The same engines, for another network, without those that cannot be prepared for it. They were checked
    with the first network."""
    found = {}
    for name in usable:
        engine, reason = bench.eager, ""
        if name != Engine.name:
            engine, reason = prepare_only(name, bench.eager, bench.examples, bench.labels, Solo())
        if not reason:
            found[name] = engine
    return found


def shared(times: Mapping[str, StepTime], larger: float, parallel: Parallel) -> dict[str, StepTime]:
    """Step times of the slowest rank of a group, scaled to steps `larger` times as large, so that all ranks
    choose the same engine. An engine that one rank cannot use is used by none."""
    own = [
        value
        for time in times.values()
        for value in _in_nano(time.seconds * larger, time.prepare_seconds, time.error)
    ]
    ranks = everyone(parallel, *own)
    found = {}
    for place, (name, time) in enumerate(times.items()):
        seconds, ready, errors = ([rank[3 * place + part] / NANO for rank in ranks] for part in range(3))
        usable = min(seconds) > 0
        why_not = "" if usable else time.why_not or "another rank cannot use it"
        found[name] = StepTime(max(seconds) if usable else 0.0, max(ready), why_not, max(errors))
    return found


def _in_nano(*values: float) -> tuple[int, ...]:
    return tuple(round(value * NANO) for value in values)


def _prepared(name: str, eager: Engine, examples: torch.Tensor, labels: torch.Tensor) -> _Candidate:
    began = perf_counter()
    alone = Solo()  # the ranks agree later, in `shared`
    engine, reason = prepare_and_check(name, eager, examples, labels, alone)
    # An engine that is not made anew for each trial is ready for all of them now, so no trial waits for it.
    return _Candidate(engine, perf_counter() - began if engine.is_made_anew else 0.0, reason)


def _in_turn(
    bench: _Bench, candidates: Mapping[str, _Candidate], seconds: float
) -> Mapping[str, Sequence[float]]:
    """Times of steps by engine, without a choice of threads."""
    usable = {name: each.engine for name, each in candidates.items() if not each.why_not}
    times: dict[str, list[float]] = {name: [] for name in usable}
    until, least, most = perf_counter() + seconds, *ROUNDS
    while len(times[Engine.name]) < most and (len(times[Engine.name]) < least or perf_counter() < until):
        for name, engine in usable.items():
            times[name].append(bench.seconds(engine))
    for engine in usable.values():
        engine.release()
    return times


def _step_times(
    candidates: Mapping[str, _Candidate], times: Mapping[str, Sequence[float]]
) -> dict[str, StepTime]:
    return {
        name: replace(
            _step_time(times[name]) if name in times else StepTime(0.0),
            prepare_seconds=each.prepare_seconds,
            why_not=each.why_not,
        )
        for name, each in candidates.items()
    }


def _step_time(seconds: Sequence[float]) -> StepTime:
    """The median and its standard error. For normally distributed times the standard error of the median is
    1.2533 times that of the mean, and the standard deviation is 1.4826 times the median absolute
    deviation."""
    middle = median(seconds)
    deviation = 1.4826 * median(abs(each - middle) for each in seconds)
    return StepTime(middle, error=1.2533 * deviation / (middle * sqrt(len(seconds))))
