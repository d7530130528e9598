"""What happens to a group: messages of the master, and how the work went that the conduct had asked for."""

from __future__ import annotations

import math

from aiperf.config import EAGER
from aiperf.proposing.plan import Plan
from aiperf.tasks.tally import Tally
from aiperf.wire.messages import ToGroup
from aiperf.wire.reports import FromGroup
from nas.frozen import frozen
from nas.graph import Graph


@frozen
class Built:
    """What a trial is going to train, known before its first step."""

    graph: Graph
    plan: Plan
    step_seconds: float = math.inf
    """The length of a step where a model assumes it; infinite where only the first step will tell."""


@frozen
class Prepared:
    """The preparation of an assigned trial is over, well or badly."""

    trial: int
    attempt: int
    built: Built | None
    """None when the preparation failed on this rank; `Begin` then reports why."""


@frozen
class Begun:
    """All ranks of the group have their network and the optimizer of the trial."""

    engine: str = EAGER
    """The engine that is to make the steps; not that of `Begin` where that one refuses the network."""
    reason: str = ""
    """Why this engine."""
    threads: tuple[int, ...] = ()
    """Number of threads of each rank of the group; empty if the devices are not CPUs."""


@frozen
class EngineFailed:
    """The engine cannot make the steps of this network, or not as PyTorch makes them; eager ones follow."""

    engine: str
    reason: str
    """What a compiler or a capture raised, or how the step differed, in one line."""


@frozen
class BlockDone:
    """The steps of a `Train` are done, on all ranks."""

    steps: int
    examples: int
    """Examples that all ranks of the group trained on."""
    seconds: float
    """From the first step to the last, with the device synchronised at both ends."""
    loss: float
    """Mean over the block; finite, because a loss that is not ends the trial."""
    ended: float
    """When the last step ended, on the driver's clock in seconds."""


@frozen
class ValidationDone:
    """The validation that closes a segment is done, on all ranks."""

    tally: Tally
    """What was counted over the whole group."""
    seconds: float
    ended: float
    """When it ended, on the driver's clock in seconds."""
    skipped: int = 0
    """Steps of the segment that the optimizer left out because fp16 gradients overflowed."""
    logs: str = ""
    """SHA-256 over the logs of the group's ranks so far; empty where no log is written."""


@frozen
class Failed:
    """The trial that is running failed; the group is whole and goes on with the next one."""

    here: bool = True
    """False when it failed on another rank, which tells the master itself."""
    reason: str = ""
    """The error with its rank and host."""
    out_of_memory: bool = False
    traceback: str = ""


@frozen
class Answered:
    """A measurement or an evaluation is done; these messages are its result."""

    messages: tuple[FromGroup, ...]


@frozen
class WeightsWritten:
    """The kept weights of a trial are on disk, or could not be written."""

    trial: int
    attempt: int
    weights: str = ""
    """SHA-256 of the file; empty when the trial kept nothing."""
    failed: Failed | None = None
    """Why nothing was kept that should have been: the trial failed in the end."""


Event = (
    ToGroup
    | Prepared
    | Begun
    | EngineFailed
    | BlockDone
    | ValidationDone
    | Failed
    | Answered
    | WeightsWritten
)
