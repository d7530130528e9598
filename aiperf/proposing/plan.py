"""The schedule of a trial: number of steps, validations, and the learning rate of each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, cos, pi, prod

from aiperf.config import LimitsConfig, TrainingConfig
from aiperf.wire.trial import Trial
from nas.frozen import frozen
from nas.graph import Graph

EXAMPLES_AT_ONCE = 400
"""Batch size of a validation, over all ranks of a group, if an example has one answer. Without gradients this
many examples fit into the memory that a training batch needs."""
POSITIONS_AT_ONCE = 16_384
"""Positions per batch of a validation, on each rank, if each position of an example has an answer, as in
text: at the size of GPT-2 small the inner activations of one MLP then take 200 MB."""

SEGMENT_SECONDS = 540.0
"""Training time in seconds after which a validation closes the segment, due or not. A segment is credited as
a whole or not at all, so it must not be longer than ten minutes."""


MEASURING_SECONDS = (2.0, 20.0)
"""Minimum and maximum of `measuring_seconds`."""
MEASURING_SHARE = 0.07
"""Fraction of the span for which a CPU measures itself before it, within the bounds above. Together with what
torch loads for its first network and optimizer this comes to a tenth."""

FABRIC_SECONDS, FABRIC_SHARE = (10.0, 60.0), 0.1
"""Minimum and maximum of `fabric_seconds`, and its share of the span. A process that imports torch takes 2 to
3 s on two idle cores, and then measures for some seconds; the maximum includes the start of NCCL on thousands
of ranks."""
COUPLED_SECONDS = 30.0
"""Maximum of `coupled_seconds`."""

COOLING = 0.2
"""Fraction of a trial's steps after the warm-up, the last ones, in which a trapezoidal learning rate
falls."""
SHARES: Mapping[str, Callable[[float], float]] = {
    "cosine": lambda done: (1 + cos(pi * done)) / 2,
    "linear": lambda done: 1 - done,
    "trapezoid": lambda done: min(1.0, (1 - done) / COOLING),
}
"""Learning rate as a fraction of the peak rate, by `training.decay`; the argument is the fraction of the
steps after the warm-up that are done."""


@frozen
class Plan:
    """A trial's schedule in steps. Every step reads one whole batch, which may contain the end of one pass
    over the examples and the beginning of the next."""

    steps: int
    segment_steps: int
    """Number of steps between two validations; the last segment may be shorter."""
    warmup_steps: int
    peak_rate: float
    decay: str
    patience: int = 0
    """Validations without a better error that end the trial; 0: none do."""

    def rate(self, step: int, end: int | None = None) -> float:
        """Learning rate of the step with this index: a linear warm-up, then the decay to zero at the end of
        the plan, or at step `end` if a deadline comes earlier, because the error falls only once the learning
        rate does."""
        if step < self.warmup_steps:
            return self.peak_rate * (step + 1) / self.warmup_steps
        end = self.steps if end is None else min(end, self.steps)
        done = (step - self.warmup_steps) / max(1, end - self.warmup_steps)
        return self.peak_rate * SHARES[self.decay](min(1.0, done))


def measuring_seconds(limits: LimitsConfig) -> float:
    """Time in seconds that a CPU spends on threads, ceilings and control together, before the span."""
    least, most = MEASURING_SECONDS
    return max(least, min(most, MEASURING_SHARE * 60 * limits.minutes)) if limits.minutes else most


def fabric_seconds(limits: LimitsConfig, ranks: int) -> float:
    """Time limit in seconds for measuring the fabric between this number of ranks; 0 if there is nothing to
    measure, or if the run is so short that its share is over before the processes have started."""
    least, most = FABRIC_SECONDS
    seconds = min(most, FABRIC_SHARE * 60 * limits.minutes) if limits.minutes else most
    return seconds if ranks > 1 and seconds >= least else 0.0


def coupled_seconds(of_fabric: float) -> float:
    """Time limit in seconds for the coupled control, after the fabric, whose limit is `of_fabric`."""
    return min(COUPLED_SECONDS, of_fabric)


def plan(trial: Trial, training: TrainingConfig, training_examples: int) -> Plan:
    """The plan of a trial on `training_examples` examples."""
    batch_size = trial.hyper.batch_size
    steps = ceil(trial.epochs * training_examples / batch_size)
    return Plan(
        steps=steps,
        segment_steps=min(steps, max(1, round(training.validate_every_examples / batch_size))),
        warmup_steps=int(training.warmup * steps),
        peak_rate=trial.hyper.learning_rate,
        decay=training.decay,
        patience=training.patience,
    )


def validated_at_once(graph: Graph, ranks: int) -> int:
    """Batch size of a validation in examples, over all `ranks` of a group."""
    answers = graph.head.targets(graph.input)
    return ranks * max(1, POSITIONS_AT_ONCE // prod(answers)) if answers else EXAMPLES_AT_ONCE
