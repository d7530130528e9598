"""Which engine makes the steps of a trial: the one by which it is over first, as measured before the span."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import hypot

from aiperf.config import AUTO_STEP, EAGER, TrainingConfig
from aiperf.wire.messages import StepTime
from nas.graph import Graph
from nas.ops import TENSOR_OPS

LEAST_GAIN = 0.02
"""The share of an eager step that an engine must save to be worth another kind of step."""
ERRORS = 2.0
"""It must also save so many standard errors of the difference, or the next run would choose otherwise: eager
is the default where two are equal within the noise."""


@dataclass(frozen=True)
class Expected:
    """What is known of a trial before its first step."""

    steps: int
    size: float
    """Operations of its step, as a multiple of those of the step that was measured."""
    layers: float
    """Layers, as a multiple of those of the network that was measured."""
    seconds_left: float
    """Time left of the span; infinite without a limit."""


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
        return EAGER, reasons or "nothing was measured, because a step takes too long"
    base = usable.pop(EAGER)
    eager = base.seconds
    expected = min(trial.steps * eager * trial.size, trial.seconds_left)
    noise = {
        name: ERRORS * hypot(base.error * eager, time.error * time.seconds) for name, time in usable.items()
    }
    saved = {
        name: expected * (1 - time.seconds / eager) - trial.layers * time.prepare_seconds
        for name, time in usable.items()
        if eager - time.seconds >= max(LEAST_GAIN * eager, noise[name])
    }
    best = max(saved, key=lambda name: saved[name], default=EAGER)
    if best == EAGER:
        return EAGER, "the fastest before the span"
    rate = f"{eager / usable[best].seconds:.2f} times as fast as eager before the span"
    if saved[best] <= 0:
        return EAGER, f"{best} steps are {rate}, but take longer to prepare than the trial would gain"
    return best, rate


@dataclass
class Engines:
    """Chooses the engine of each trial by what was measured before the span."""

    training: TrainingConfig
    typical: Graph
    """The network whose steps are timed."""
    times: Mapping[str, StepTime] = field(default_factory=dict)
    """Step times by engine; none until they were measured."""

    def choose(self, graph: Graph, steps: int, batch_size: int, seconds_left: float) -> tuple[str, str]:
        """The engine for so many steps of this network, and why."""
        size = graph.cost.train.price(TENSOR_OPS) / self.typical.cost.train.price(TENSOR_OPS)
        size *= batch_size / self.training.batch_size
        layers = len(graph.nodes) / len(self.typical.nodes)
        return choose(self.training.step, self.times, Expected(steps, size, layers, seconds_left))
