"""Which engine makes the steps of a trial: the one by which it is over first, as measured before the span."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import hypot

from aiperf.config import AUTO_STEP, EAGER, FUSED, TrainingConfig
from aiperf.wire.reports import StepTime
from nas.frozen import frozen
from nas.graph import Graph
from nas.ops import TENSOR_OPS

LEAST_GAIN = 0.02
"""The share of a step's time that another engine must save to be worth another kind of step."""
ERRORS = 2.0
"""Standard errors of the difference that an engine must save, or the next run would choose otherwise."""
NOT_COMPARED = "the engines were not compared: too few steps fit into the time before the span"
"""Why a run without measured steps is eager: it is so short, or its steps are so long, that even the smallest
batch could not be timed often enough."""


def default_of(usable: Collection[str]) -> str:
    """The engine of which another one must be faster, so that runs which measure the same within the noise
    choose the same: the fused one where it can be used, because it makes fewer passes over memory for the
    same results and takes no time to prepare; otherwise the eager one."""
    return FUSED if FUSED in usable else EAGER


@frozen
class Expected:
    """What is known of a trial before its first step."""

    steps: int
    size: float
    """Operations of its step, as a multiple of those of the step that was measured."""
    layers: float
    """Layers, as a multiple of those of the network that was measured."""
    seconds_left: float
    """Time left of the span; infinite without a limit."""


def between(size: float, seed_size: float, seed: float | None, typical: float) -> float:
    """Time in seconds of a step of this size, in multiples of the typical network's operations, if steps of
    the seed and of the typical network take `seed` and `typical` seconds: on a straight line through both,
    otherwise in proportion. A larger network never takes less."""
    if seed is None or not seed_size < 1 or size < seed_size:
        known, its_size = (typical, 1.0) if seed is None or not seed_size < 1 else (seed, seed_size)
        return known * size / its_size
    slope = max(0.0, typical - seed) / (1 - seed_size)
    return typical + slope * (size - 1) if slope else typical * max(1.0, size)


def choose(step: str, times: Mapping[str, StepTime], trial: Expected) -> tuple[str, str]:
    """The engine, and why. `step` is `training.step`; `times` were measured before the span, by engine."""
    if step != AUTO_STEP:
        measured = times.get(step)
        if measured and trial.layers * measured.prepare_seconds > trial.seconds_left:
            return EAGER, f"the span ends before {step} steps would be ready"
        return step, "as configured"
    usable = {name: time for name, time in times.items() if time.seconds > 0}
    if EAGER not in usable or len(usable) == 1:
        reasons = "; ".join(f"{name}: {time.why_not}" for name, time in times.items() if time.why_not)
        return EAGER, reasons or NOT_COMPARED
    default = default_of(usable)
    eager, base = usable[EAGER].seconds, usable.pop(default)
    expected = min(trial.steps * base.seconds * trial.size, trial.seconds_left)
    saved = {
        name: expected * (1 - time.seconds / base.seconds) - trial.layers * time.prepare_seconds
        for name, time in usable.items()
        if base.seconds - time.seconds >= _least_saved(base, time)
    }
    best = max(saved, key=lambda name: saved[name], default=default)
    if best != default and saved[best] > 0:
        return best, _compared(eager, usable[best].seconds)
    if best != default and default == EAGER:
        rate = _compared(eager, usable[best].seconds)
        return EAGER, f"{best} steps are {rate}, but take longer to prepare than the trial would gain"
    return default, _compared(eager, base.seconds)


def _least_saved(base: StepTime, other: StepTime) -> float:
    """Seconds of a step that count as saved: more than what lies within the noise of both times."""
    noise = hypot(base.error * base.seconds, other.error * other.seconds)
    return max(LEAST_GAIN * base.seconds, ERRORS * noise)


def _compared(eager: float, seconds: float) -> str:
    """How fast steps are that take so many seconds, in words."""
    if seconds == eager:
        return "the fastest before the span"
    if eager - seconds < LEAST_GAIN * eager:
        return "as fast as eager before the span, within the noise"
    return f"{eager / seconds:.2f} times as fast as eager before the span"


@frozen
class Sizes:
    """The two networks whose steps are timed before the span, and the batch of these steps."""

    seed: Graph
    typical: Graph
    """The network of the size on which a run spends most of its operations (`nas.search.typical`); the seed
    if networks do not grow into bounds."""
    batch_size: int

    @property
    def seed_size(self) -> float:
        """Operations of a step of the seed, as a fraction of those of the typical network."""
        return self.of(self.seed, self.batch_size)

    def of(self, graph: Graph, batch_size: int) -> float:
        """Operations of a step of this network, as a multiple of those of the typical network."""
        size = graph.cost.train.price(TENSOR_OPS) / self.typical.cost.train.price(TENSOR_OPS)
        return size * batch_size / self.batch_size


@dataclass
class Engines:
    """Chooses the engine of each trial by what was measured before the span."""

    training: TrainingConfig
    sizes: Sizes
    times: Mapping[str, StepTime] = field(default_factory=dict)
    """Step times of the typical network by engine; none until they were measured."""
    seed_times: Mapping[str, StepTime] = field(default_factory=dict)
    """Those of the seed; empty if it was not timed."""

    def choose(self, graph: Graph, steps: int, batch_size: int, seconds_left: float) -> tuple[str, str]:
        """The engine for this many steps of this network, and why: by the figures of the typical network if
        these choose the same, so that the trials of a run have few reasons."""
        size = self.sizes.of(graph, batch_size)
        layers = len(graph.nodes) / len(self.sizes.typical.nodes)
        trial = Expected(steps, size, layers, seconds_left)
        own, usual = (choose(self.training.step, times, trial) for times in (self._at(size), self.times))
        return usual if own[0] == usual[0] else own

    def _at(self, size: float) -> Mapping[str, StepTime]:
        """Step times of a network of this size, divided by it; those of the typical network if an engine that
        can be used was not timed with the seed, because only like is compared with like."""
        seeds = {name: time.seconds for name, time in self.seed_times.items() if time.seconds > 0}
        usable = {name for name, time in self.times.items() if time.seconds > 0}
        if not usable <= seeds.keys():
            return self.times
        seed_size = self.sizes.seed_size
        return {
            name: replace(time, seconds=between(size, seed_size, seeds[name], time.seconds) / size)
            if name in usable
            else time
            for name, time in self.times.items()
        }
