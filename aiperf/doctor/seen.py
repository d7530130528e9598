"""What the ranks report to the doctor: plain facts, judged elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aiperf.config import Config
from aiperf.wire.messages import FromGroup


@dataclass(frozen=True)
class Folder:
    """One folder, and how fast it takes what a run writes. `fault` is why it cannot be written."""

    path: str
    fault: str = ""
    free_bytes: int = 0
    bytes_per_second: float = 0.0
    append_seconds: float = 0.0
    """Of one line that is brought to the disk, in the mean."""


@dataclass(frozen=True)
class HostSeen(FromGroup):
    """One host."""

    host: str
    python: str
    clash: str
    """Another distribution that owns one of our packages; empty: none."""
    cores: int
    cores_of_rank: int
    limits: Mapping[str, int]
    """Soft ones; -1: unlimited."""
    home: Folder
    temporary: Folder
    visible: Mapping[str, str]
    """The variables that choose devices."""
    tools: Mapping[str, str]
    """What the drivers' tools answered; of one that failed, "failed: " and its reason."""
    data_entries: int
    """In the data set's folder; -1: there is no such folder; 0 also where none is wanted."""
    probe_seen: bool
    """Whether the file that the master wrote into the run directory is seen here."""
    onednn: str
    """Of oneDNN's known fault: "sound", "unknown", or how it shows itself here."""


@dataclass(frozen=True)
class Meet:
    """Where the ranks of a group meet."""

    host: str
    port: int
    listening: int = -1
    """The leader's socket, already open, so that nobody else can take the port; -1 in the others."""


@dataclass(frozen=True)
class DeviceSeen(FromGroup):
    """One device of one rank. `fault` is why it cannot be used; what comes after it was then not seen."""

    rank: int
    host: str
    fault: str = ""
    remedy: str = ""
    """Of the fault, where one is known."""
    torch: str = ""
    kind: str = ""
    name: str = ""
    identity: str = ""
    driver: str = ""
    memory_bytes: int = 0
    visible_devices: int = 0
    backend: str = ""
    """Empty: the group has one rank, and needs none."""
    reduce_bytes_per_second: float = 0.0
    not_fused: str = ""
    """Why a processor has no kernels for fused steps; empty: it has, or the device is not a processor."""


@dataclass(frozen=True)
class DataSeen(FromGroup):
    """The data set. `fault` is why a run cannot read it."""

    fault: str = ""
    sha256: str = ""
    examples: int = 0


@dataclass(frozen=True)
class Examination:
    """All that was seen."""

    config: Config
    directory: Folder
    """The run directory, as the master found it."""
    hosts: tuple[str, ...] = ()
    """Of every rank; empty: one process alone, no launcher."""
    mpi: str = ""
    """The library, or why there is none; empty: ranks that need none."""
    threads: bool = False
    """Whether MPI may be called from several threads at once."""
    layout_fault: str = ""
    """Why the ranks cannot be divided into groups."""
    backend: str = "ddp"
    pretends: bool = False
    """No worker is to train: neither torch, devices nor data were looked at."""
    host_reports: tuple[HostSeen, ...] = ()
    device_reports: tuple[DeviceSeen, ...] = ()
    data_report: DataSeen | None = None
    """None: it was not read in time."""
    clock_seconds: Mapping[str, float] = field(default_factory=dict)
    """By how much each host's time of day is ahead of the master's."""
    silent: tuple[str, ...] = ()
    """Ranks that gave no answer in time."""
    wait_seconds: float = 0.0
