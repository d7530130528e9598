"""What a run will be like, from its configuration and one rate: pure arithmetic for `run --dry-run`."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from aiperf.config import Config
from aiperf.proposing.memory import FP32_BYTES, numbers_kept, training_bytes
from aiperf.proposing.pace import block_seconds
from nas.graph import Graph
from nas.ops import OPS

RANKED_HOURS = 1.0
LINE_BYTES = 330  # of the journal, at the median


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
    memory_bytes: int | None
    """What a device needs to train the seed, by `aiperf.proposing.memory`; None where it is unknown."""


def forecast(
    config: Config,
    seed: Graph,
    examples: tuple[int, int],
    examples_per_second: float,
    groups: int = 1,
    ranks: int = 1,
    silence_seconds: float = 60.0,
    kind: str = "",
) -> Forecast:
    """`examples`: of training and of validation. `examples_per_second`: training of the seed by one group,
    which has so many `ranks` on devices of that `kind`.

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
        memory_bytes=training_bytes(seed, training, training.batch_size // ranks, ranks, kind),
    )
