"""Forecast of a run from its configuration and one rate: pure arithmetic for `run --dry-run`."""

from __future__ import annotations

from math import ceil

from aiperf.config import Config
from aiperf.proposing.memory_model import FP32_BYTES, numbers_kept, training_bytes
from aiperf.proposing.pace import block_seconds
from nas.frozen import frozen
from nas.graph import Graph
from nas.ops import OPS

RANKED_HOURS = 1.0  # as LEAST_SPAN_SECONDS of aiperf.rules, which stands on a higher floor
LINE_BYTES = 330  # median length of a line of the journal


@frozen
class Forecast:
    """Forecast for one group, for trials of the seed's own size in the first round."""

    trial_seconds: float
    """Duration of a trial in seconds, validations included."""
    trials_a_group: float | None
    """Number of trials per group within the time limit; None without one."""
    least_ranked_hours: float
    """Shortest span in hours for which the run can be ranked: an hour, and one completed trial per group."""
    weights_bytes: int
    """Upper bound on the disk space of kept weights: living parents, trials in flight and the best network,
    all at the bound on parameters."""
    journal_bytes: int
    memory_bytes: int | None
    """Memory of a device that trains the seed (`aiperf.proposing.memory_model`); None where it is unknown."""


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
    """The forecast of a run. `examples` are the numbers of training and validation examples,
    `examples_per_second` is the training rate of the seed on one group, which has `ranks` devices of a
    `kind`.

    The time of a validation is derived from that rate by its share of operations.
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
