"""Times of the training step with every engine that the device can use, measured before the span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import sqrt
from statistics import median
from time import perf_counter

import torch

from aiperf.config import AUTO_STEP, LEAST_BATCH, TrainingConfig
from aiperf.device import Device
from aiperf.device.device import memory_errors
from aiperf.device.plain_optimizers import SGD
from aiperf.engines.agreement import prepare_and_check
from aiperf.engines.engine import Engine, Passes, unchanged
from aiperf.engines.objective import objective_of
from aiperf.engines.registry import KINDS, why_not
from aiperf.measuring.training_step import RankWork, batch, place_network
from aiperf.parallel.parallel import Parallel, Solo, agree, everyone
from aiperf.wire.reports import Rate, StepTime
from nas.frozen import frozen
from nas.graph import Graph

ROUNDS = (5, 20)
"""Minimum and maximum number of timed steps of each engine without a choice of threads; the engines take
turns, as far as `_parts` lets them."""
LONG_TRIAL_SECONDS = 600.0
"""Duration that the longest trial must have for compilation to be tried on a CPU, where it takes minutes."""
COMPILED = "compiled"
"""The one engine that takes so long to be ready that it is not tried for short trials."""
NO_ROOM = "its steps have no memory while they are timed"
NANO = 1e9
"""Nanoseconds per second: a group sums whole numbers, because only these sums are exact on any device."""


@frozen
class Timing:
    """The engines that are timed: the eager one and the one that `training.step` names, or all engines if it
    is auto."""

    training: TrainingConfig
    longest_steps: int
    """Steps of the longest plan of a trial, at most."""
    longest_seconds: float
    """Length of the span in seconds; infinite without a time limit."""
    parallel: Parallel
    seconds: float
    """Time for their steps, in addition to that for the network's passes, once the engines are prepared."""

    @property
    def names(self) -> tuple[str, ...]:
        step = self.training.step
        return tuple(name for name in KINDS if name == Engine.name or step in (AUTO_STEP, name))


@frozen
class PreparedEngine:
    engine: Engine
    prepare_seconds: float
    why_not: str = ""
    """Reason why it cannot be used; `engine` is then the eager one."""


@frozen
class StepBench:
    """A network with a batch, on which engines are timed."""

    eager: Engine
    examples: torch.Tensor
    labels: torch.Tensor
    """Targets of the examples."""

    def seconds(self, engine: Engine) -> float:
        """Time of one step, which leaves the network as it was."""
        device = engine.passes.device
        with unchanged(engine.passes):
            device.synchronise()
            began = perf_counter()
            engine.step(self.examples, self.labels)
            device.synchronise()
            return perf_counter() - began

    def seconds_if_room(self, engine: Engine) -> float:
        """The same; 0 if an engine other than the eager one has no memory for a step."""
        try:
            with memory_errors():
                return self.seconds(engine)
        except torch.OutOfMemoryError:
            if engine is self.eager:
                raise
            return 0.0


def measure_steps(
    device: Device, work: RankWork, rate: Rate | None, timing: Timing
) -> Mapping[str, StepTime]:
    """Step times by engine with the threads in use; `rate` is that of the network. The result is empty if
    even the smallest batch takes too long."""
    least = ROUNDS[0] * len(KINDS) * work.operations(1)
    bench = _agreed_bench(device, work, timing.seconds * rate.typical / least if rate else 0, timing)
    if bench is None:
        return {}
    fitting, times, parts = len(bench.labels), dict[str, StepTime](), _parts(device, timing.names)
    for names in parts:
        engines = prepared_engines(bench, work, timing, names)
        times |= times_of(engines, in_turn(bench, engines, timing.seconds / len(parts)))
    if timing.parallel.wraps_network and timing.parallel.ranks > 1 and not device.threads:
        times |= _in_group(times, device, work, fitting, timing.parallel)
    return shared_times(times, work.batch_size / fitting, timing.parallel)


def _agreed_bench(device: Device, work: RankWork, own: float, timing: Timing) -> StepBench | None:
    """A bench with the batch that all ranks of the group time, at most `own`; None if the smallest is too
    large for one. On a device other than a CPU it is halved while one rank has no memory for it."""
    fitting = agreed_batch_size(own, work, timing)
    if fitting and device.threads:  # a CPU with a choice of threads, which may be in the group, agrees once
        return bench_of(device, work.network, work.format, fitting)
    while fitting:
        bench = _bench_if_room(device, work, fitting)
        if not agree(timing.parallel, bench is None):
            return bench
        bench = None  # with its memory, before the next is made
        fitting = agreed_batch_size(fitting // 2, work, timing)
    return None


def _bench_if_room(device: Device, work: RankWork, num_examples: int) -> StepBench | None:
    """The bench, or None if there is no memory for its eager step."""
    with suppress(torch.OutOfMemoryError), memory_errors():
        return bench_of(device, work.network, work.format, num_examples)
    device.clean()
    return None


def _parts(device: Device, names: Sequence[str]) -> list[list[str]]:
    """The engines that are prepared at once and take turns: all on a CPU. On another device, each that is
    made anew is timed after the others are released: a captured step keeps the memory of a whole one, and a
    trial has one of them only."""
    if device.threads:
        return [list(names)]
    together = [name for name in names if not KINDS[name].is_made_anew]
    return [together, *([name] for name in names if name not in together)]


def _in_group(
    times: Mapping[str, StepTime], device: Device, work: RankWork, num_examples: int, parallel: Parallel
) -> dict[str, StepTime]:
    """The times of the engines that begin after the network was wrapped, with the group's all-reduce in their
    steps: such a step, if it can be captured at all, is not that of one rank. Only for devices other than
    CPUs, whose ranks all call it."""
    found = {}
    for name, time in times.items():
        usable = all(seconds for (seconds,) in everyone(parallel, *_in_nano(time.seconds)))
        if usable and KINDS[name].begins(wrapped=True):
            bench = _bench_if_room(device, work, num_examples)
            lacking = agree(parallel, bench is None)  # before a step that waits for all ranks
            ratio, ready, reason = (
                (0.0, 0.0, NO_ROOM) if lacking or bench is None else _raced(name, bench, parallel)
            )
            found[name] = StepTime(ratio * times[Engine.name].seconds, ready, reason, time.error)
    return found


def _raced(name: str, bench: StepBench, parallel: Parallel) -> tuple[float, float, str]:
    """How long a step of the engine takes in a group, relative to an eager one; how long it takes to be
    ready; the reason why it cannot be used, with 0 as the ratio. All ranks make the same number of steps.

    The eager steps are timed before the others are captured, which then need no memory beside them: a rank
    that has none left in a step with an all-reduce would leave the others waiting."""
    eager = bench.eager
    optimizer = SGD(eager.passes.network.parameters(), lr=0.0)
    eager.module, _ = parallel.wrap(eager.bare, optimizer)
    for _ in range(KINDS[name].begins(wrapped=True)):
        bench.seconds(eager)
    of_eager = median(bench.seconds(eager) for _ in range(ROUNDS[0]))
    began = perf_counter()
    engine, reason = prepare_and_check(KINDS[name], eager, bench.examples, bench.labels, parallel)
    ready = perf_counter() - began
    if reason:
        return 0.0, ready, reason
    own = median(bench.seconds(engine) for _ in range(ROUNDS[0]))
    engine.release()
    return own / of_eager, ready, ""


def agreed_batch_size(own: float, work: RankWork, timing: Timing | None) -> int:
    """Batch size that all ranks of the group time, at most `own`; 0 if the smallest is too large for one."""
    fitting = min(int(own), work.batch_size)
    if timing:
        (fitting,) = min(everyone(timing.parallel, fitting))
    return fitting if fitting >= min(LEAST_BATCH, work.batch_size) else 0


def bench_of(device: Device, graph: Graph, format: str, num_examples: int) -> StepBench:
    """A network with initial weights and a batch of random examples, after one eager step."""
    examples, labels = batch(graph, device, num_examples)
    scaler = torch.amp.GradScaler(device.kind, enabled=format == "fp16")
    passes = Passes(place_network(graph, device), device, format, scaler, objective_of(graph))
    bench = StepBench(Engine(passes), examples, labels)
    bench.seconds(bench.eager)  # the first step also loads libraries and chooses kernels
    return bench


def prepared_engines(
    bench: StepBench, work: RankWork, timing: Timing | None, names: Sequence[str]
) -> dict[str, PreparedEngine]:
    """The engines of these names, prepared, or the reasons why they cannot be used."""
    found = {}
    for name in names:
        reason = _reason(name, bench, work, timing) if timing and name != Engine.name else ""
        if reason or name == Engine.name:
            found[name] = PreparedEngine(bench.eager, 0.0, reason)
        else:
            found[name] = _prepared(name, bench.eager, bench.examples, bench.labels)
    return found


def _reason(name: str, bench: StepBench, work: RankWork, timing: Timing) -> str:
    """Why an engine is not prepared; empty if it is."""
    training, device = timing.training, bench.eager.passes.device
    if reason := why_not(name, work.network, device, training, timing.parallel.ranks):
        return reason
    if training.step != AUTO_STEP or name != COMPILED or device.kind != "cpu":
        return ""
    eager = bench.seconds(bench.eager) * work.batch_size / len(bench.examples)
    expected = min(timing.longest_steps * eager, timing.longest_seconds)
    if expected < LONG_TRIAL_SECONDS:
        return f"no trial is long enough to compile for: {expected:.0f} s at most"
    return ""


def shared_times(times: Mapping[str, StepTime], larger: float, parallel: Parallel) -> dict[str, StepTime]:
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


def _prepared(name: str, eager: Engine, examples: torch.Tensor, labels: torch.Tensor) -> PreparedEngine:
    """An engine, prepared and checked on this rank alone, with the time that it took."""
    began = perf_counter()
    alone = Solo()  # the ranks agree later, in `shared_times`
    engine, reason = prepare_and_check(KINDS[name], eager, examples, labels, alone)
    # An engine that is not made anew for each trial is ready for all of them now, so no trial waits for it.
    return PreparedEngine(engine, perf_counter() - began if engine.is_made_anew else 0.0, reason)


def in_turn(
    bench: StepBench, engines: Mapping[str, PreparedEngine], seconds: float
) -> Mapping[str, Sequence[float]]:
    """Times of steps by engine, without a choice of threads. The last one is 0 if an engine had no memory
    left for it."""
    usable = {name: each.engine for name, each in engines.items() if not each.why_not}
    times: dict[str, list[float]] = {name: [] for name in usable}
    until, rounds, (least, most) = perf_counter() + seconds, 0, ROUNDS
    while usable and rounds < most and (rounds < least or perf_counter() < until):
        rounds += 1
        for name, engine in tuple(usable.items()):
            times[name].append(bench.seconds_if_room(engine))
            if not times[name][-1]:
                usable.pop(name).release()
    for engine in usable.values():
        engine.release()
    return times


def times_of(
    engines: Mapping[str, PreparedEngine], times: Mapping[str, Sequence[float]]
) -> dict[str, StepTime]:
    """The median step times of the engines that were timed; 0 s and the reason for the others."""
    return {
        name: replace(
            _step_time(times[name]) if name in times else StepTime(0.0, why_not=each.why_not),
            prepare_seconds=each.prepare_seconds,
        )
        for name, each in engines.items()
    }


def _step_time(seconds: Sequence[float]) -> StepTime:
    """The median and its standard error. For normally distributed times the standard error of the median is
    1.2533 times that of the mean, and the standard deviation is 1.4826 times the median absolute
    deviation. There is none of steps without memory."""
    if not seconds[-1]:
        return StepTime(0.0, why_not=NO_ROOM)
    middle = median(seconds)
    deviation = 1.4826 * median(abs(each - middle) for each in seconds)
    return StepTime(middle, error=1.2533 * deviation / (middle * sqrt(len(seconds))))
