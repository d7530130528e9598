"""What the master and the groups say to each other: typed records, sent as JSON.

No code and no pickle crosses the wire. Clocks of different hosts are never compared: a time is a
duration on the sender's clock, or its age at the moment of sending.

Long, and one file, because every record that crosses the wire is here, with the meaning of each key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiperf.config import Config
from aiperf.errors import WorldError
from aiperf.tally import Tally
from aiperf.tasks.images.tally import Classified
from aiperf.tasks.language.tally import Predicted
from aiperf.trial import BLOCK_SECONDS, Segment, State, StepBlock, Trial
from nas.record import RecordError, decode, encode

VERSION = 1
TALLIES: tuple[type[Tally], ...] = (Classified, Predicted)
"""Of this program's tasks: imported here, so that a message with any of them can be read."""


@dataclass(frozen=True)
class ToGroup:
    """From the master to one group."""


@dataclass(frozen=True)
class Setup(ToGroup):
    """The first message: what to initialise for."""

    config: Config
    seed_graph: Mapping[str, Any]
    directory: str
    """The run's."""
    probe: str = ""
    """What the probe file holds: a rank that reads it there shares the directory with the master."""
    leg: int = 0
    """In the first one a rank has no log yet: what lies in its place is of another run."""


@dataclass(frozen=True)
class Join(ToGroup):
    """Where the ranks of the group meet, as one of them said."""

    host: str
    port: int


@dataclass(frozen=True)
class Observe(ToGroup):
    """Record from now on what the host and its devices do; the first rank of each host does."""

    devices: Mapping[str, tuple[str, ...]]
    """By host, the identities of the devices that its ranks have."""


@dataclass(frozen=True)
class MeasureCeiling(ToGroup):
    """Find out what the device can do; all groups at once."""

    seconds: float
    """A processor takes about so many, whatever it finds."""


@dataclass(frozen=True)
class MeasureControl(ToGroup):
    """Time the control; all groups at once."""

    seconds: float
    """A processor takes about so many."""


@dataclass(frozen=True)
class Assign(ToGroup):
    """Train this trial after those already assigned; prepare it as soon as possible.

    Every assignment is answered by one `Finished`, of the state WAITING if the trial never began.
    """

    trial: Trial
    attempt: int


@dataclass(frozen=True)
class StepTime:
    """The training step of the run's typical network by one engine, on the slowest rank of the group before
    the span."""

    seconds: float
    """The median of a step; 0 where it cannot be used."""
    prepare_seconds: float = 0.0
    """Before its first step: what it takes to build, capture or compile it."""
    why_not: str = ""
    """Why it cannot be used."""
    error: float = 0.0
    """The standard error of the median, as a share of it."""


@dataclass(frozen=True)
class Release(ToGroup):
    """The clock runs. Training ends in time for the closing validation."""

    seconds_left: float | None
    """To the deadline; None without one."""
    threads: Mapping[str, int] = field(default_factory=dict)
    """By rank, the number that was chosen for one which is started again."""
    block_seconds: float = BLOCK_SECONDS
    """About so long is a block of steps."""
    steps: Mapping[str, StepTime] = field(default_factory=dict)
    """What a group that is started again had measured; it chooses its engines by them."""


@dataclass(frozen=True)
class Stop(ToGroup):
    """Close the running trial with a validation, drop what was assigned."""


@dataclass(frozen=True)
class Evaluate(ToGroup):
    """Evaluate the kept weights of a trial on the test examples."""

    trial: int


@dataclass(frozen=True)
class Quit(ToGroup):
    """The run is over."""


@dataclass(frozen=True)
class FromGroup:
    """From one group to the master."""


@dataclass(frozen=True)
class Meeting(FromGroup):
    """The leader waits for the other ranks of its group at this address."""

    host: str
    port: int


@dataclass(frozen=True)
class Processor:
    """Of a host whose processor is the device: what bounds its speed."""

    machine: str
    """x86_64, aarch64 …"""
    logical: int
    """Processors that the operating system has."""
    top_hertz: float
    """With boost; 0 where the host does not state it."""
    flags: tuple[str, ...]
    """Of its instructions, those that multiply vectors or tiles."""
    vector_bits: int = 0
    """Of Arm's scalable vectors; 0 where there are none."""


@dataclass(frozen=True)
class Ready(FromGroup):
    """One rank is initialised: device bound, data loaded and checked."""

    rank: int
    host: str
    pid: int
    device: str
    memory_bytes: int
    software: Mapping[str, str]
    code_hash: str
    data: Mapping[str, Any]
    """The manifest of the data set as this rank sees it."""
    initial_weights: str
    """SHA-256 of the seed's initial weights."""
    wall_seconds: float
    """The host's own time of day (seconds since 1970), to compare the clocks of the hosts once."""
    seconds: float
    """From the start of the process to this message."""
    visible_devices: int = 1
    """Of the device's kind, to this rank."""
    device_id: str = ""
    """What tells the device from all others of its host; empty for a CPU, and where the driver has none."""
    sees_run: bool = True
    """Whether the run directory is the master's own."""
    multiplies: Mapping[str, str] = field(default_factory=dict)
    """The format that each kind of product was seen to use where the run's own was declared."""
    formats: Mapping[str, float] = field(default_factory=dict)
    """Operations a second of a small matrix product on one thread, by format: native ones stand out."""
    processor: Processor | None = None
    """None where the device is none."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What the rank computes in, by name: threads, ISA, governor, job, container, MPI, variables."""


@dataclass(frozen=True)
class Refused(FromGroup):
    """The last word of a rank that cannot take part: its device, data or group is not as it must be."""

    rank: int
    host: str
    reason: str


@dataclass(frozen=True)
class Rate:
    """Of one kind of work, over many short windows."""

    fastest: float
    """The ceiling."""
    typical: float
    """The median, which ranks are compared by."""
    spread: float
    """Robust standard deviation of the windows, as a share of the median."""


@dataclass(frozen=True)
class Ceiling(FromGroup):
    """The most that one device can do: short, simple work before the clock starts."""

    rank: int
    host: str
    device: str
    format: str
    side: int
    """Of the square matrices that were multiplied fastest; 0 where tall ones were."""
    product: Rate
    """Operations a second of them, a multiply-accumulate being two."""
    copy: Rate
    """Bytes a second, read and written, within the device's memory."""
    upload: Rate | None = None
    """Bytes a second from the host's memory; None where the host is the device."""
    all_reduce: Rate | None = None
    """Bytes of a tensor that is summed over the group, over the time it takes; None for a rank alone."""
    seed: Rate | None = None
    """Tensor operations a second of forward and backward passes of the network that is typical of the run:
    the seed, or what growth makes of it. None where one takes too long to be measured."""
    threads: int = 0
    """That this rank computes with from now on; 0 where the device is not a processor."""
    thread_seconds: Mapping[str, float] = field(default_factory=dict)
    """By number of threads the median time [s] of the work that they were chosen by; empty where nothing was
    to choose."""
    threads_share: float = 0.0
    """The share of resampled measurements that choose this number of threads; 0 where too few were made."""
    steps: Mapping[str, StepTime] = field(default_factory=dict)
    """By engine; empty where only one may be used."""
    thread_products: Mapping[str, Rate] = field(default_factory=dict)
    """By number of threads operations a second of matrix products, `product` with the number in use. Of the
    others that could be chosen, those that products did not take too long with; empty where nothing was to
    choose."""

    @property
    def products(self) -> Mapping[str, Rate]:
        """By number of threads, also where only one was measured."""
        return self.thread_products or {str(self.threads): self.product}

    @property
    def fastest(self) -> float:
        """Operations a second of the fastest work that was seen."""
        return max(self.product.fastest, self.seed.fastest if self.seed else 0.0)


@dataclass(frozen=True)
class Rung:
    """Training steps of one network on examples of one size; without a name of the task's control network."""

    size: int
    batch_size: int
    steps: int
    seconds: float
    network: str = ""

    @property
    def examples_per_second(self) -> float:
        """0 if it took no time, which the rule on measurements reports."""
        return self.batch_size * self.steps / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Control(FromGroup):
    """Training steps of the task's control network on synthetic examples, before the clock starts."""

    rank: int
    host: str
    device: str
    batch_size: int
    steps: int
    seconds: float
    examples_per_second: float
    size: int = 224
    """Of an example: side in pixels, or bytes of a window. A processor takes smaller ones where the
    largest take too long."""
    network: str = ""
    """The name of the smaller network, where a processor took `ControlNetwork.smaller`."""
    others: tuple[Rung, ...] = ()
    """What else a processor timed, from the smallest: controls are compared at a rung that both have."""

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """All that were timed, this one last."""
        return (*self.others, Rung(self.size, self.batch_size, self.steps, self.seconds, self.network))


@dataclass(frozen=True)
class Started(FromGroup):
    """The first step of a trial is about to begin."""

    trial: int
    attempt: int
    graph_key: str
    """Of the architecture the group really built."""
    prepare_seconds: float
    """From assignment to readiness, most of it beside the trial before."""
    engine: str = "eager"
    """That is to make its steps."""
    chosen: str = ""
    """Why this one."""


@dataclass(frozen=True)
class Fallback(FromGroup):
    """The engine of a trial cannot make its step, or makes another one than torch: it is trained eagerly."""

    trial: int
    attempt: int
    engine: str
    reason: str


@dataclass(frozen=True)
class Steps(FromGroup):
    """A block of steps is finished."""

    block: StepBlock
    age_seconds: float
    """From the end of the last step to the sending of this."""


@dataclass(frozen=True)
class Working(FromGroup):
    """A long validation goes on."""


@dataclass(frozen=True)
class Validated(FromGroup):
    """A segment is closed by a validation."""

    segment: Segment
    age_seconds: float
    logs: str = ""
    """SHA-256 over those of the logs of the group's ranks so far; empty where none is written."""


NOTHING_KEPT = -1


@dataclass(frozen=True)
class Finished(FromGroup):
    """A trial ended; the weights of its best validation are on disk if it has any."""

    trial: int
    attempt: int
    state: State
    reason: str
    """Why it ended, for a failure with the rank, the host and the traceback's last line."""
    out_of_memory: bool = False
    traceback: str = ""
    weights: str = ""
    """SHA-256 of the file that was kept; empty when there is none."""
    age_seconds: float = 0.0
    """From the end of its last work to the sending of this (the weights are written in between)."""
    kept: int | None = None
    """The segment after which its network was as it is kept; NOTHING_KEPT without one, None of a trial
    that failed or never began."""


@dataclass(frozen=True)
class Evaluated(FromGroup):
    """Kept weights, evaluated on the test examples."""

    trial: int
    tally: Tally
    seconds: float
    top5: int | None = None
    """Of the images, those whose label is among the five highest outputs. None where there are no more than
    five classes, and of language."""

    @property
    def top5_error(self) -> float | None:
        return None if self.top5 is None or not self.tally.of else 1 - self.top5 / self.tally.of


_WRITTEN = json.JSONEncoder(allow_nan=False, check_circular=False)  # `json.dumps` makes one each time


def pack(message: ToGroup | FromGroup) -> bytes:
    return _WRITTEN.encode({"version": VERSION, **encode(message)}).encode()


def unpack(family: type[ToGroup | FromGroup], data: bytes) -> Any:
    """Raises WorldError for what is not a message of this version."""
    try:
        record = json.loads(data.decode())
        if record.pop("version", None) != VERSION:
            raise WorldError(
                "the ranks run different versions of aiperf-hpc; install the same version on all nodes"
            )
        return decode(family, record)
    except (ValueError, AttributeError, RecordError) as error:
        raise WorldError(f"a message cannot be read: {error}") from None
