"""How many steps a trial makes, when and how it validates, and the learning rate of each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, cos, pi, prod

from aiperf.config import LimitsConfig, TrainingConfig
from aiperf.trial import Trial
from nas.graph import Graph

CLOSING_SHARE = 1.5
"""Times the last validation: what is left for the closing one before a deadline."""

EXAMPLES_AT_ONCE = 400
"""In a validation, over all ranks of a group, where each has one answer; without gradients so many fit where
a training batch does."""
POSITIONS_AT_ONCE = 16_384
"""On each rank, where each position of an example has an answer, as in text: in GPT-2-small size the inside
of one MLP is then 200 MB."""

SEGMENT_SECONDS = 540.0
"""Of training, after which a validation closes the segment: one is credited whole, so it must not grow
beyond ten minutes."""


MEASURING_SECONDS = (2.0, 20.0)
MEASURING_SHARE = 0.07
"""Of the span: so long a processor measures itself before it, within the bounds above. With what torch loads
for its first network and optimizer it comes to a tenth."""

COOLING = 0.2
"""Share of a trial's steps after its warm-up, the last ones, in which a trapezoid's rate falls."""
SHARES: Mapping[str, Callable[[float], float]] = {
    "cosine": lambda done: (1 + cos(pi * done)) / 2,
    "linear": lambda done: 1 - done,
    "trapezoid": lambda done: min(1.0, (1 - done) / COOLING),
}
"""Of the peak rate, where a share of the steps after the warm-up is done: by `training.decay`."""


@dataclass(frozen=True)
class Plan:
    """A trial's schedule in steps. Every step reads one whole batch; passes run into one another."""

    steps: int
    segment_steps: int
    """Steps between two validations; the last segment may be shorter."""
    warmup_steps: int
    peak_rate: float
    decay: str

    def rate(self, step: int, end: int | None = None) -> float:
        """The learning rate of the step with this index: a linear warm-up, then the decay to zero at the end
        of the plan, or at the step `end` where a deadline comes before: what is learnt at a high rate only
        shows once the rate has fallen."""
        if step < self.warmup_steps:
            return self.peak_rate * (step + 1) / self.warmup_steps
        end = self.steps if end is None else min(end, self.steps)
        done = (step - self.warmup_steps) / max(1, end - self.warmup_steps)
        return self.peak_rate * SHARES[self.decay](min(1.0, done))


def measuring_seconds(limits: LimitsConfig) -> float:
    """Of a processor for threads, ceilings and control together, before the span."""
    least, most = MEASURING_SECONDS
    return max(least, min(most, MEASURING_SHARE * 60 * limits.minutes)) if limits.minutes else most


def plan(trial: Trial, training: TrainingConfig, training_examples: int) -> Plan:
    """The plan of a trial on so many training examples."""
    batch_size = trial.hyper.batch_size
    steps = ceil(trial.epochs * training_examples / batch_size)
    return Plan(
        steps=steps,
        segment_steps=min(steps, max(1, round(training.validate_every_examples / batch_size))),
        warmup_steps=int(training.warmup * steps),
        peak_rate=trial.hyper.learning_rate,
        decay=training.decay,
    )


def validated_at_once(graph: Graph, ranks: int) -> int:
    """Examples in a batch of a validation, over all `ranks` of a group."""
    answers = graph.head.targets(graph.input)
    return ranks * max(1, POSITIONS_AT_ONCE // prod(answers)) if answers else EXAMPLES_AT_ONCE
