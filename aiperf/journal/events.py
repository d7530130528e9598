"""The lines of a journal: every key that may stand there, in one place.

`t` of a line is seconds on the master's monotonic clock since its leg began. Within an event, `end`
is on that same clock: when the work ended, not when the news of it arrived. What a group said stands
in its own words, as the message or the value that it sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from aiperf.config import Config
from aiperf.journal.words import TERMINATED as TERMINATED
from aiperf.trial import Segment, StepBlock, Trial
from aiperf.wire.messages import Ceiling, Control, Evaluated, Fallback, Finished, Ready, Started

OpsVector = tuple[int, int, int, int, int, int, int]
"""mac, add, mul, div, sqrt, exp, cmp."""


class Origin(Enum):
    """Where the times and outcomes of a run come from. Only a measured run can be VALID."""

    MEASURED = "measured"
    """Networks were trained."""
    PRETENDED = "pretended"
    """By workers that only waited, in real time, as `Assumptions` say."""
    SIMULATED = "simulated"
    """On a virtual clock."""


@dataclass(frozen=True)
class Event:
    """One line of the journal."""


@dataclass(frozen=True)
class Opened(Event):
    """The first line: what the run is."""

    version: int
    """Of the journal's form."""
    run_id: str
    program: str
    """Version of aiperf-hpc."""
    code_hash: str
    config: Config
    seed_graph: Mapping[str, Any]
    """The starting architecture, whole; every other one is recorded as morphisms."""
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Versions of those that proposals follow from, beside this program."""
    search: int = 1
    """Version of the search, `Task.search_version`; the first one is left out of the line."""
    origin: Origin = Origin.MEASURED
    """A measured run's is left out of the line."""


@dataclass(frozen=True)
class LegBegan(Event):
    """The run started or was resumed."""

    index: int
    started: str
    """Time of day, UTC, ISO 8601."""
    command: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    """The ranks of each group."""
    backend: str = "ddp"
    """How the ranks of a group average their gradients: ddp or horovod."""
    host: str = ""
    """The master's; empty where the run is simulated."""

    def __post_init__(self) -> None:
        ranks = [rank for group in self.groups for rank in group]
        if not all(self.groups) or len(set(ranks)) < len(ranks):
            raise ValueError("groups: each has a rank at the least, and each rank one group")


@dataclass(frozen=True)
class RankReady(Event):
    """One rank is initialised."""

    group: int
    ready: Ready
    clock_offset_seconds: float
    """The rank's time of day less the master's when its message arrived."""


@dataclass(frozen=True)
class RankAlike(Event):
    """As `RankReady`, of a rank that has most in common with one that was ready in this leg before it."""

    group: int
    like: int
    """The other rank."""
    differs: Mapping[str, Any]
    """The fields of its `Ready` that are other ones."""
    within: Mapping[str, Mapping[str, Any]]
    """Of fields that are mappings, the entries that are other ones or new."""
    clock_offset_seconds: float


@dataclass(frozen=True)
class CeilingMeasured(Event):
    """The most that one device can do."""

    ceiling: Ceiling


@dataclass(frozen=True)
class ControlMeasured(Event):
    """One device's rate on the fixed network."""

    control: Control


@dataclass(frozen=True)
class Released(Event):
    """The span of this leg begins."""

    deadline: float | None
    """In `t`; None without a limit of time."""


@dataclass(frozen=True)
class Dispatched(Event):
    """A trial was given to a group. The operations are for one example of its architecture."""

    trial: Trial
    attempt: int
    group: int
    graph_key: str
    forward: OpsVector
    backward: OpsVector
    evaluate: OpsVector
    parameters: int


@dataclass(frozen=True)
class Began(Event):
    """A group made its first step of a trial."""

    started: Started
    end: float


@dataclass(frozen=True)
class FellBack(Event):
    """A group makes the steps of its trial eagerly from here on."""

    fallback: Fallback


@dataclass(frozen=True)
class Stepped(Event):
    """A block of finished steps."""

    block: StepBlock
    end: float


@dataclass(frozen=True)
class Closed(Event):
    """A validation closed a segment."""

    segment: Segment
    end: float
    logs: str = ""
    """SHA-256 over those of what each rank of the group had written into its log by then, up to and with the
    line of this validation; empty where the group writes none."""


@dataclass(frozen=True)
class Ended(Event):
    """A trial's attempt ended."""

    finished: Finished
    end: float


@dataclass(frozen=True)
class GroupLost(Event):
    """A group died or fell silent; its running trial counts no more."""

    group: int
    reason: str


@dataclass(frozen=True)
class Beat(Event):
    """The master is alive. Written when nothing else was for some seconds."""


@dataclass(frozen=True)
class Stalled(Event):
    """Since the line above, for longer than a beat takes, the master or its file system stood still. Written
    before the first line that follows. The time counts."""


@dataclass(frozen=True)
class LegEnded(Event):
    """No more training in this leg."""

    reason: str
    """deadline, trials, target, interrupted, TERMINATED or an error's line."""
    end: float
    """When the span of this leg ended."""


@dataclass(frozen=True)
class Tested(Event):
    """The best network on the test examples, once, after the span."""

    evaluated: Evaluated
