"""The work of `profile`, as plain data that is passed to the processes of a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiperf.config import LEAST_BATCH, DataConfig, TrainingConfig
from aiperf.errors import ConfigError
from aiperf.tasks.task import Task
from aiperf.wire.profile_records import Ceilings
from aiperf.wire.trial import HyperParameters
from nas.frozen import frozen
from nas.graph import Graph
from nas.record import graph_to_json

WORK, MEETING, ANSWER, LOG, TRACE = "work.json", "meeting.json", "answer-{}.json", "rank-{}.log", "trace.json"
"""Files in the directory that the ranks of a group share."""
AUTO = "auto"
"""Choice of the device, or of the number format, that is left to the rank."""
LEARNING_RATE = 1e-3
"""Learning rate for a seed. No figure depends on it, but it must be low enough that the loss stays finite."""
BATCHES = 4
"""Number of batches of synthetic examples that are generated."""


@frozen
class ProfileWork:
    """A network, its data and its training, to be profiled on one group."""

    graph: Mapping[str, Any]
    """The architecture as JSON, because this record is passed on as JSON."""
    data: DataConfig
    training: TrainingConfig
    """Its format may be auto, which means the fastest one that the device has natively."""
    hyper: HyperParameters
    random_seed: int
    rounds: int = 5
    """Number of plain steps and of profiled steps."""
    device: str = AUTO
    """Kind of device, or auto."""
    ranks: int = 1
    """Number of ranks, which share the batch and the cores of this host."""
    ceilings: Ceilings | None = None
    """Ceilings of one rank; None: they are measured."""
    trace: bool = False
    """Whether a trace is written."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a batch that the ranks cannot share evenly, with one that they can."""
        batch = self.hyper.batch_size
        if batch % self.ranks or batch < LEAST_BATCH * self.ranks:
            near = max(LEAST_BATCH, batch // self.ranks) * self.ranks
            raise ConfigError(
                f"a batch of {batch} cannot be shared evenly by {self.ranks} ranks of at least {LEAST_BATCH} "
                f"examples; use --batch {near}"
            )


def of_seed(task: Task, graph: Graph, batch_size: int) -> ProfileWork:
    """Work on generated examples of the task, by the optimizer of its presets. Raises ConfigError for an
    architecture that generated examples do not fit."""
    training = TrainingConfig(
        format=AUTO,
        batch_size=batch_size,
        learning_rate=LEARNING_RATE,
        epochs=(1,),
        validate_every_examples=BATCHES * batch_size,
        optimizer=task.optimizer,
    )
    return ProfileWork(
        graph=graph_to_json(graph),
        data=task.generated(graph, (BATCHES * batch_size, batch_size, 1)),
        training=training,
        hyper=HyperParameters(LEARNING_RATE, batch_size),
        random_seed=1,
    )
