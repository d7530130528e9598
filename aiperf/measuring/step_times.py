"""Times of the training step with every engine that the device can use, measured before the span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import median
from time import perf_counter

import torch

from aiperf.config import AUTO_STEP, LEAST_BATCH, TrainingConfig
from aiperf.device import Device
from aiperf.engines.agreement import prepare_and_check
from aiperf.engines.engine import Engine, Passes, unchanged
from aiperf.engines.registry import KINDS, why_not
from aiperf.measuring.before_span import RankWork
from aiperf.measuring.training_step import batch, place_network
from aiperf.parallel.parallel import Parallel, Solo, everyone
from aiperf.wire.messages import Rate, StepTime

ROUNDS = (5, 20)
"""Minimum and maximum number of timed steps of each engine; the engines take turns."""
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
class _Candidate:
    engine: Engine
    prepare_seconds: float
    why_not: str = ""


def measure_steps(
    device: Device,
    work: RankWork,
    training: TrainingConfig,
    rate: Rate | None,
    longest: Longest,
    parallel: Parallel,
    seconds: float,
) -> Mapping[str, StepTime]:
    """Step times by engine on random examples, measured in about `seconds` once the engines are prepared:
    those of the eager engine and of the one that `training.step` names, or of all engines if it is auto.

    `rate` is that of the network. If a step takes too long on some rank, all ranks time a smaller batch; if
    even the smallest takes too long, the result is empty. An engine whose step differs from the eager one's
    is not timed.
    """
    own = seconds * rate.typical / (ROUNDS[0] * len(KINDS) * work.operations(1)) if rate else 0
    (fitting,) = min(everyone(parallel, min(int(own), work.batch_size)))
    if fitting < min(LEAST_BATCH, work.batch_size):
        return {}
    times = _measured(device, work, fitting, training, parallel.ranks, longest, seconds)
    return shared(times, work.batch_size / fitting, parallel)


def _measured(
    device: Device,
    work: RankWork,
    num_examples: int,
    training: TrainingConfig,
    ranks: int,
    longest: Longest,
    seconds: float,
) -> Mapping[str, StepTime]:
    """Step times on this rank, by steps of `num_examples`."""
    examples, labels = batch(work.network, device, num_examples)
    scaler = torch.amp.GradScaler(device.kind, enabled=work.format == "fp16")
    passes = Passes(place_network(work.network, device), device, work.format, scaler)
    eager = Engine(passes)
    _timed(eager, examples, labels)  # the first step also loads libraries and chooses kernels
    eager_seconds = _timed(eager, examples, labels) * work.batch_size / num_examples
    candidates = {eager.name: _Candidate(eager, 0.0)}
    for name in KINDS:
        if name == eager.name or training.step not in (AUTO_STEP, name):
            continue
        reason = why_not(name, work.network, device, training, ranks)
        if not reason and training.step == AUTO_STEP and name == COMPILED and device.kind == "cpu":
            expected = min(longest.steps * eager_seconds, longest.seconds)
            if expected < LONG_TRIAL_SECONDS:
                reason = f"no trial is long enough to compile for: {expected:.0f} s at most"
        without = _Candidate(eager, 0.0, reason)
        candidates[name] = without if reason else _prepared(name, eager, examples, labels)
    usable = {name: each.engine for name, each in candidates.items() if not each.why_not}
    times = _in_turn(usable, examples, labels, seconds)
    for engine in usable.values():
        engine.release()
    return {
        name: replace(
            times.get(name, StepTime(0.0)), prepare_seconds=each.prepare_seconds, why_not=each.why_not
        )
        for name, each in candidates.items()
    }


def shared(times: Mapping[str, StepTime], larger: float, parallel: Parallel) -> Mapping[str, StepTime]:
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
    engines: Mapping[str, Engine], examples: torch.Tensor, labels: torch.Tensor, seconds: float
) -> Mapping[str, StepTime]:
    times: dict[str, list[float]] = {name: [] for name in engines}
    until, least, most = perf_counter() + seconds, *ROUNDS
    while len(times[Engine.name]) < most and (len(times[Engine.name]) < least or perf_counter() < until):
        for name, engine in engines.items():
            times[name].append(_timed(engine, examples, labels))
    return {name: _step_time(each) for name, each in times.items()}


def _step_time(seconds: Sequence[float]) -> StepTime:
    """The median and its standard error. For normally distributed times the standard error of the median is
    1.2533 times that of the mean, and the standard deviation is 1.4826 times the median absolute
    deviation."""
    middle = median(seconds)
    deviation = 1.4826 * median(abs(each - middle) for each in seconds)
    return StepTime(middle, error=1.2533 * deviation / (middle * sqrt(len(seconds))))


def _timed(engine: Engine, examples: torch.Tensor, labels: torch.Tensor) -> float:
    device = engine.passes.device
    with unchanged(engine.passes):
        device.synchronise()
        began = perf_counter()
        engine.step(examples, labels)
        device.synchronise()
        return perf_counter() - began
