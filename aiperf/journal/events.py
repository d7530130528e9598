"""The lines of a journal: every event with all its keys.

`t` of a line is the time in seconds on the master's monotonic clock since its leg began. Within an event,
`end` is on the same clock: the time at which the work ended, not the time at which the news of it arrived.
Messages of groups are recorded unchanged (`aiperf.wire.messages`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from enum import Enum
from operator import attrgetter
from typing import Any, NamedTuple

from aiperf.config import Config
from aiperf.journal.words import TERMINATED as TERMINATED
from aiperf.tasks.tally import Tally
from aiperf.wire.clocks import ClockReading
from aiperf.wire.reports import (
    Ceiling,
    Control,
    DeviceCheck,
    Evaluated,
    Fabric,
    Fallback,
    Finished,
    HostUse,
    Ready,
    Started,
)
from aiperf.wire.trial import Segment, StepBlock, Trial
from nas.frozen import frozen
from nas.ops import Ops


class Origin(Enum):
    """Origin of the times and outcomes of a run. Only a measured run can be VALID."""

    MEASURED = "measured"
    """Networks were trained."""
    PRETENDED = "pretended"
    """Workers only waited, in real time, as `Assumptions` state."""
    SIMULATED = "simulated"
    """The run was simulated on a virtual clock."""


@frozen
class Event:
    """What one line of the journal says happened."""

    __slots__ = ()


class Line(NamedTuple):
    """One line of a journal as it was read."""

    number: int
    """Line number from 1, as an editor counts."""
    t: float
    event: Event
    chain: str
    intact: bool
    """Whether the chain follows from this line and from the chain recorded before it."""


@frozen
class Opened(Event):
    """The first line: the identity and the configuration of the run."""

    version: int
    """Version of the journal's form."""
    run_id: str
    program: str
    """Version of aiperf-hpc."""
    code_hash: str
    config: Config
    seed_graph: Mapping[str, Any]
    """The starting architecture as a whole graph; all others are recorded as morphisms of their parents."""
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Versions of the libraries on which proposals depend, in addition to this program."""
    search: int = 1
    """Version of what is proposed (`proposals_version`); version 1 is left out of the line."""
    origin: Origin = Origin.MEASURED
    """Origin of the run; MEASURED is left out of the line."""
    rules: int = 1
    """Version of the rules under which the run was made; version 1 is left out of the line."""
    salt_sha256: str = ""
    """SHA-256 of the salt with which this journal hides what identifies a person or a site
    (`aiperf.journal.hidden`); left out if it hides nothing, as one of a simulated run."""


@frozen
class LegBegan(Event):
    """The run was started or resumed."""

    index: int
    """Index of the leg, from 0."""
    started: str
    """Time of day in UTC (ISO 8601)."""
    command: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    """The ranks of each group."""
    backend: str = "ddp"
    """How the ranks of a group average their gradients: ddp or horovod."""
    host: str = ""
    """Host of the master; empty if the run is simulated."""

    @property
    def ranks(self) -> list[int]:
        """The ranks of all groups."""
        return [rank for group in self.groups for rank in group]

    def __post_init__(self) -> None:
        if not all(self.groups) or len(set(self.ranks)) < len(self.ranks):
            raise ValueError("groups: each has a rank at the least, and each rank one group")


@frozen
class NonceGiven(Event):
    """A notary gave this leg its nonce (`aiperf.journal.notary`), so all that follows was written later."""

    nonce: str
    signature: str
    """The notary's signature of its first answer."""


@frozen
class RankReady(Event):
    """One rank is initialised."""

    group: int
    ready: Ready
    clock_offset_seconds: float
    """Time of day of the rank's host minus that of the master's, in seconds, by the quickest of several round
    trips (`aiperf.wire.clocks`)."""
    clock_uncertainty_seconds: float | None = None
    """Largest possible error of the offset in seconds, half of that round trip; None in older journals, whose
    offset is that of one message, and counts as exact."""

    @property
    def clock(self) -> ClockReading:
        return ClockReading(self.clock_offset_seconds, self.clock_uncertainty_seconds or 0.0)


@frozen
class RankAlike(Event):
    """The same as `RankReady` in short form, for a rank that has most in common with one that was ready
    earlier in this leg (`aiperf.journal.compression`)."""

    group: int
    like: int
    """The earlier rank."""
    differs: Mapping[str, Any]
    """Fields of its `Ready` that differ."""
    within: Mapping[str, Mapping[str, Any]]
    """Entries that differ or are new, of fields that are mappings."""
    clock_offset_seconds: float
    clock_uncertainty_seconds: float | None = None


@frozen
class CeilingMeasured(Event):
    """The ceilings of one device, measured before the span."""

    ceiling: Ceiling


@frozen
class ControlMeasured(Event):
    """The rate of one device on the control network, measured before the span."""

    control: Control


@frozen
class DeviceChecked(Event):
    """What one device computed in the device check: before the span, twice if it deviated, and after it."""

    check: DeviceCheck


@frozen
class FabricMeasured(Event):
    """What lies between the devices, measured by all ranks together, before they bind their devices."""

    fabric: Fabric


@frozen
class Released(Event):
    """The span of this leg begins."""

    deadline: float | None
    """End of the span at the latest, on the clock of `t`; None without a time limit."""


@frozen
class Dispatched(Event):
    """A trial was given to a group. The operations are those of one example of its architecture."""

    # A long run has a hundred thousand of them. (`slots=True` makes a second class, and a record names its.)
    __slots__ = ("attempt", "backward", "evaluate", "forward", "graph_key", "group", "parameters", "trial")
    trial: Trial
    attempt: int
    group: int
    graph_key: str
    forward: Ops
    backward: Ops
    evaluate: Ops
    parameters: int


@frozen
class Began(Event):
    """A group has prepared a trial and begins its first step."""

    started: Started
    end: float


@frozen
class FellBack(Event):
    """A group trains its trial with the eager engine from here on."""

    fallback: Fallback


@frozen
class Stepped(Event):
    """A block of steps was finished."""

    block: StepBlock
    end: float

    @property
    def row(self) -> BlockRow:
        """The fields of the block in their order, then the end."""
        return (*_FIELDS_OF_BLOCK(self.block), self.end)

    @classmethod
    def of(cls, row: BlockRow) -> Stepped:
        return cls(StepBlock(*row[:-1]), row[-1])


@frozen
class Closed(Event):
    """A validation closed a segment."""

    segment: Segment
    end: float
    logs: str = ""
    """SHA-256 over the digests of the logs of the group's ranks, each up to and including the line of this
    validation; empty if the group writes no logs."""

    @property
    def row(self) -> ClosedRow:
        """The fields of the segment in their order, then the end and the hash."""
        return (*_FIELDS_OF_SEGMENT(self.segment), self.end, self.logs)

    @classmethod
    def of(cls, row: ClosedRow) -> Closed:
        return cls(Segment(*row[:-2]), *row[-2:])


# Blocks of steps and validations without names, of which a long journal has too many to make objects.
BlockRow = tuple[int, int, int, int, int, float, float | None, float]
ClosedRow = tuple[int, int, int, int, int, float, Tally, float, int, float, str]
_FIELDS_OF_BLOCK: Callable[[StepBlock], Any] = attrgetter(*(each.name for each in fields(StepBlock)))
_FIELDS_OF_SEGMENT: Callable[[Segment], Any] = attrgetter(*(each.name for each in fields(Segment)))


@frozen
class Ended(Event):
    """An attempt at a trial ended."""

    finished: Finished
    end: float


@frozen
class GroupLost(Event):
    """A group died or was silent for too long. Its running attempt is abandoned."""

    group: int
    reason: str


@frozen
class HostUsed(Event):
    """How the processors of one host were used."""

    use: HostUse
    end: float


@frozen
class Beat(Event):
    """The master is alive. This is written after some seconds without another line."""


@frozen
class Stalled(Event):
    """The master or its file system stood still since the line above, for longer than a beat takes. This is
    written before the next line. The time counts as part of the span."""


@frozen
class LegEnded(Event):
    """The training of this leg has ended."""

    reason: str
    """deadline, trials, target, interrupted, TERMINATED, exhausted or an error, with its text."""
    end: float
    """Time at which the span of this leg ended."""


@frozen
class Tested(Event):
    """The result of the best network on the test examples, which are used once, after the span."""

    evaluated: Evaluated
