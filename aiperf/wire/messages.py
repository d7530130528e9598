"""The protocol between the master and the groups: typed records, sent as JSON.

The master sends `ToGroup` messages, a group sends `FromGroup` messages. In the order of a run:

    Setup → (FabricMeeting → JoinFabric → FabricPart) → (Meeting, Join)          before a device is bound
    Ready → Observe, MeasureCeiling → Ceiling → MeasureControl → Control → CheckDevice → DeviceCheck → Release
    Assign → Started → Steps … → Validated → Steps … → Validated → Finished      for each trial
    Stop, CheckDevice → DeviceCheck, Evaluate → Evaluated, Quit                  at the end

No code and no pickle crosses the wire. Clocks of different hosts are never compared: a time is either a
duration on the sender's clock, or the age of an event when the message was sent, from which the master
computes when it happened on its own clock. `Ready.wall_seconds` is the one exception. Durations are in
seconds of a monotonic clock.

What the journal keeps of what a group sends is in `aiperf.wire.reports`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from aiperf.config import Config
from aiperf.errors import WorldError
from aiperf.wire.reports import FromGroup, StepTime, TimedStep
from aiperf.wire.trial import BLOCK_SECONDS, Segment, StepBlock, Trial
from nas.frozen import frozen
from nas.record import RecordError, decode, encode

VERSION = 1
"""Version of the protocol. Each message carries it, and `unpack` refuses any other, so that ranks with
different installations of the program are reported as such."""


@frozen
class ToGroup:
    """A message from the master to a group."""


@frozen
class Setup(ToGroup):
    """The first message to a group: the run that its ranks initialise for."""

    config: Config
    seed_graph: Mapping[str, Any]
    """The starting architecture as a JSON graph."""
    directory: str
    """Absolute path of the run directory."""
    probe: str = ""
    """Random text that the master has written into the probe file of the run directory. A rank that reads the
    same text there shares the directory with the master; empty: the rank does not check."""
    leg: int = 0
    """Index of this leg, from 0. In leg 0 a rank deletes any log of its own that it finds in the directory,
    because it must be from another run; in later legs it appends to its log."""
    salt: str = ""
    """Salt of the names that the journal hides (`aiperf.journal.names`), by which a rank names the files that
    may be published; empty: they have the name of the host."""
    fabric_seconds: float = 0.0
    """Time limit in seconds within which all ranks of the run measure the fabric together, before a rank
    binds its device; 0: they do not."""


@frozen
class JoinFabric(ToGroup):
    """The address at which all ranks of the run meet to measure the fabric (see `FabricMeeting`)."""

    host: str
    """Empty if they do not meet."""
    port: int
    secret: str
    """Random text of the master, under which the ranks keep their keys."""


@frozen
class Join(ToGroup):
    """The address of the group's leader, passed on to all ranks of the group (see `Meeting`)."""

    host: str
    port: int
    secret: str
    """Random text of the master, under which the group keeps its keys."""


@frozen
class AskTime(ToGroup):
    """Request for a rank's time of day, which it answers at once (`aiperf.wire.clocks`)."""

    number: int


@frozen
class Observe(ToGroup):
    """Start recording telemetry of the host and its devices. Only the first rank of each host records, for
    all ranks there."""

    devices: Mapping[str, tuple[str, ...]]
    """Identities of the devices that the ranks use, by host name."""
    processes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Process numbers of the ranks, and of the master, by host name."""
    use_seconds: float = 60.0
    """Time between two `HostUse` of a host in seconds."""


@frozen
class MeasureCeiling(ToGroup):
    """Measure the device's ceilings (`Ceiling`). All groups measure at the same time, as they will train."""

    seconds: float
    """Time budget in seconds, before the span. A CPU uses all of it; an accelerator spends a fixed time on
    each kind of work. If several engines may be used, timing their steps takes half of it in addition."""


@frozen
class MeasureControl(ToGroup):
    """Time the task's control network (`Control`). All groups measure at the same time."""

    seconds: float
    """Time budget in seconds, before the span. A CPU uses all of it; an accelerator times at least a fixed
    number of steps and of seconds."""


@frozen
class CheckDevice(ToGroup):
    """Train the fixed network whose bits must be the same on all equal devices (`DeviceCheck`): before the
    span, again if the device deviates, and after the span."""

    seconds: float
    """Shortest time in seconds on an accelerator; a CPU takes a fifth of it."""
    ranks: tuple[int, ...] = ()
    """The ranks of the group that are asked; empty: all."""


@frozen
class Assign(ToGroup):
    """Train this trial after those already assigned, and prepare it while the one before is training.

    The group answers each assignment with one `Finished`, in state WAITING if the trial never began.
    """

    trial: Trial
    attempt: int
    """Number of the attempt, from 1. A trial that was lost with its group, or that ran out of memory and gets
    a smaller batch, is dispatched again under the next number."""


@frozen
class Release(ToGroup):
    """Start of the span, or, for a group that was restarted, its return to it. From here on trials are
    assigned. Each group stops training early enough for its closing validation to end by the deadline."""

    seconds_left: float | None
    """Time from now to the deadline in seconds; None without a time limit."""
    threads: Mapping[str, int] = field(default_factory=dict)
    """Number of threads that each rank of a restarted group chose before the span, by rank; a restarted group
    does not measure again."""
    block_seconds: float = BLOCK_SECONDS
    """Target length of a block of steps in seconds. It grows with the number of groups, which bounds the rate
    at which the master receives messages."""
    steps: Mapping[str, StepTime] = field(default_factory=dict)
    """Step times that a restarted group had measured before the span, by engine; it chooses the engine of
    each trial by them."""
    seed_steps: Mapping[str, StepTime] = field(default_factory=dict)
    """The same of the seed (`Ceiling.seed_steps`)."""
    timed: Mapping[str, tuple[TimedStep, ...]] = field(default_factory=dict)
    """`Ceiling.timed` of each rank of a restarted group, by rank, from which it chooses the threads of each
    trial."""


@frozen
class Stop(ToGroup):
    """Close the running trial with a validation, and return the assigned ones untrained."""


@frozen
class Evaluate(ToGroup):
    """Evaluate the kept weights of a trial on the test examples, once, after the span."""

    trial: int


@frozen
class Quit(ToGroup):
    """The last message: the run is over, and the ranks exit."""


@frozen
class Meeting(FromGroup):
    """Address at which the leader waits for the other ranks of its group to form a process group. The master
    passes it on as `Join`; a group of one rank sends none."""

    host: str
    port: int


@frozen
class FabricMeeting(FromGroup):
    """A rank is about to measure the fabric. Once all are, the master passes on as `JoinFabric` where the
    first rank waits for the others: processes of a large job start minutes apart."""

    rank: int
    host: str = ""
    """Address of the first rank; empty if it has none that others can reach, and from all other ranks."""
    port: int = 0


@frozen
class TimeOfDay(FromGroup):
    """The answer to the request with the same number."""

    number: int
    wall_seconds: float
    """Time of day in seconds since 1970."""


@frozen
class Refused(FromGroup):
    """The last message of a rank that cannot take part, because its device, data or group does not meet the
    requirements."""

    rank: int
    host: str
    reason: str


@frozen
class Steps(FromGroup):
    """A block of training steps is finished."""

    block: StepBlock
    age_seconds: float
    """Time from the end of the last step to the sending of this message, in seconds."""


@frozen
class Working(FromGroup):
    """A sign of life during long work without news, such as a validation or the compilation of an engine, so
    that the master does not take the group for lost."""


@frozen
class NextWanted(FromGroup):
    """A trial will soon end. Its group wants the next one now, so that it is prepared by then."""

    trial: int
    attempt: int


@frozen
class Validated(FromGroup):
    """A validation has closed a segment."""

    segment: Segment
    age_seconds: float
    """Time from the end of the validation to the sending of this message, in seconds."""
    logs: str = ""
    """SHA-256 over the digests of the logs that the group's ranks have written so far, in rank order; empty
    if no log is written. Later changes of a log can be detected by it."""


# Made once: `json.dumps` with options would make a new encoder for each message.
_WRITTEN = json.JSONEncoder(allow_nan=False, check_circular=False)


def pack(message: ToGroup | FromGroup) -> bytes:
    """The message as UTF-8 JSON, with its type and the protocol version."""
    return _WRITTEN.encode({"version": VERSION, **encode(message)}).encode()


def unpack(family: type[ToGroup | FromGroup], data: bytes) -> Any:
    """The message of this family that `data` encodes. Raises WorldError if it is none, or of another version
    of the protocol."""
    try:
        record = json.loads(data.decode())
        if record.pop("version", None) != VERSION:
            raise WorldError(
                "the ranks run different versions of aiperf-hpc; install the same version on all nodes"
            )
        return decode(family, record)
    except (ValueError, AttributeError, RecordError) as error:
        raise WorldError(f"a message cannot be read: {error}") from None
