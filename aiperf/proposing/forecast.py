"""What a run will be like, from its configuration and one rate: pure arithmetic for `run --dry-run`."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from aiperf.config import Config, TrainingConfig
from aiperf.proposing.pace import block_seconds
from nas.graph import Graph
from nas.matrices import hidden_matrices
from nas.ops import OPS

RANKED_HOURS = 1.0
LINE_BYTES = 330  # of the journal, at the median
ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
FP32_BYTES = ELEMENT_BYTES["fp32"]


@dataclass(frozen=True)
class Forecast:
    """Of one group, for trials of the seed's own size in the first round."""

    trial_seconds: float
    trials_a_group: float | None
    """In the limit of time; None without one."""
    least_ranked_hours: float
    """For a span of an hour, and one completed trial a group."""
    weights_bytes: int
    """At the most: living parents, trials in flight and the best network at the bound of parameters."""
    journal_bytes: int
    memory_bytes: int
    """Of a device for the seed's training step: weights, gradients, optimizer state and activations, as a
    model."""


def forecast(
    config: Config,
    seed: Graph,
    examples: tuple[int, int],
    examples_per_second: float,
    groups: int = 1,
    ranks: int = 1,
    silence_seconds: float = 60.0,
) -> Forecast:
    """`examples`: of training and of validation. `examples_per_second`: training of the seed by one group,
    which has so many `ranks`.

    Validation is priced by its operations.
    """
    training = config.training
    trained, validated = training.epochs[0] * examples[0], examples[1]
    validations = ceil(trained / training.validate_every_examples)
    evaluate_share = seed.cost.evaluate.price(OPS) / seed.cost.train.price(OPS)
    seconds = (trained + validations * validated * evaluate_share) / examples_per_second
    span = config.limits.minutes * 60
    living = config.search.population + 2 * groups + 1
    kept = FP32_BYTES * numbers_kept(seed, training)
    lines = (
        (span or seconds * (config.limits.max_trials or 1)) / block_seconds(groups, silence_seconds) * groups
    )
    return Forecast(
        trial_seconds=seconds,
        trials_a_group=span / seconds if span else None,
        least_ranked_hours=max(RANKED_HOURS, seconds / 3600),
        weights_bytes=int(living * kept * config.search.bounds.max_parameters),
        journal_bytes=int(lines * LINE_BYTES),
        memory_bytes=memory_bytes(seed, training, training.batch_size // ranks),
    )


def memory_bytes(graph: Graph, training: TrainingConfig, examples: int) -> int:
    """Of a device that trains on so many examples at once: a model."""
    return sum(memory_parts(graph, training, examples).values())


def memory_parts(graph: Graph, training: TrainingConfig, examples: int) -> dict[str, int]:
    """The same by what it holds."""
    weights = FP32_BYTES * graph.num_parameters
    return {
        "weights": weights,
        "gradients": weights,
        "optimizer_state": FP32_BYTES * numbers_kept(graph, training) - weights,
        "activations": ELEMENT_BYTES[training.format] * graph.num_activations * examples,
    }


def numbers_kept(graph: Graph, training: TrainingConfig) -> int:
    """Of all weights and the optimizer's state. Muon has one number, not two, beside each of its matrices."""
    fewer = sum(map(prod, hidden_matrices(graph).values())) if training.optimizer == "muon" else 0
    return training.numbers_a_weight * graph.num_parameters - fewer
