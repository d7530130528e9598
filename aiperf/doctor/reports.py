"""Reports of the ranks to the doctor: plain facts, which `judge` turns into checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from aiperf.config import Config
from aiperf.wire.clocks import ClockReading
from aiperf.wire.reports import FromGroup
from nas.frozen import frozen

WAIT_SECONDS = 50.0
"""Default time limit of an examination in seconds. The limits of its parts hold for this one."""


def patient(seconds: float, wait_seconds: float) -> float:
    """The time limit of a part of an examination, longer in proportion if the whole one may take longer. It
    never becomes shorter."""
    return seconds * max(1.0, wait_seconds / WAIT_SECONDS)


@frozen
class Folder:
    """A folder, and how fast a run can write to it. `fault` is the reason why it cannot be written."""

    path: str
    fault: str = ""
    free_bytes: int = 0
    """Bytes that this user may still write."""
    bytes_per_second: float = 0.0
    """Rate at which a large file is written and flushed."""
    append_seconds: float = 0.0
    """Mean time in seconds to append a line and flush it to the disk."""


@frozen
class HostReport(FromGroup):
    """Facts about one host."""

    host: str
    python: str
    """Version of Python."""
    clash: str
    """Name of another distribution that owns one of our packages; empty if there is none."""
    cores: int
    """Number of cores of the host."""
    cores_of_rank: int
    """Number of cores to which the launcher has bound this rank."""
    load: float | None
    """Mean number of processes of the host that ran or waited in the last minute; None if the system does not
    say. Waiting are those for a core and those for a hanging file system."""
    limits: Mapping[str, int]
    """Soft limits of the process by name; -1: unlimited."""
    home: Folder
    temporary: Folder
    visible: Mapping[str, str]
    """Environment variables that choose devices."""
    tools: Mapping[str, str]
    """Answers of the drivers' tools, by tool; for a tool that failed, "failed: " and the reason."""
    data_entries: int
    """Number of entries in the data set's folder; -1 if there is no such folder; 0 also if none is needed."""
    probe_seen: bool
    """Whether this host sees the file that the master wrote into the run directory."""
    onednn: str
    """Result of the test for oneDNN's known fault: "sound", "unknown", or how the fault appears here."""


@frozen
class Meet:
    """Address at which the ranks of a group meet."""

    host: str
    port: int
    listening: int = -1
    """File descriptor of the leader's socket, which is open already so that no other process can take the
    port; -1 in the other ranks."""


@frozen
class DeviceReport(FromGroup):
    """Facts about one device of one rank. `fault` is the reason why it cannot be used; the fields below may
    then be unknown."""

    rank: int
    host: str
    fault: str = ""
    remedy: str = ""
    """Remedy for the fault, if one is known."""
    torch: str = ""
    kind: str = ""
    name: str = ""
    identity: str = ""
    """What tells it from other devices of its host, as a UUID; empty if no driver says."""
    driver: str = ""
    memory_bytes: int = 0
    visible_devices: int = 0
    """Number of devices of its kind that this rank sees."""
    backend: str = ""
    """Backend of torch.distributed; empty if the group is one rank, which needs none."""
    reduce_bytes_per_second: float = 0.0
    """Rate of an all-reduce over the group, as the size of the tensor over the time."""
    not_fused: str = ""
    """Reason why there are no kernels for fused steps here; empty if there are, or if none were written for
    such devices."""
    note: str = ""
    """What the user should know about the choice of the device."""
    late: bool = False
    """Whether the fault is that the others of the group were not there in time, so that its cause may be
    another rank."""
    slowed_by: str = ""
    """A setting of the environment that makes the device slow; empty if there is none."""


@frozen
class DataReport(FromGroup):
    """Facts about the data set. `fault` is the reason why a run cannot read it."""

    fault: str = ""
    sha256: str = ""
    examples: int = 0
    remedy: str = ""
    """Remedy for the fault, if one is known."""
    note: str = ""
    """What was read of a folder and what was left out."""


@frozen
class Examination:
    """All reports of an examination."""

    config: Config
    directory: Folder
    """The run directory, as seen by the master."""
    hosts: tuple[str, ...] = ()
    """Host of every rank; empty for a single process without a launcher."""
    mpi: str = ""
    """Name of the MPI library, or the reason why there is none; empty if the ranks need none."""
    threads: bool = False
    """Whether MPI may be called from several threads at once (MPI_THREAD_MULTIPLE)."""
    devices_per_group: int = 1
    """Number of devices that train a trial together."""
    layout_fault: str = ""
    """Reason why the ranks cannot be divided into groups; empty if they can."""
    backend: str = "ddp"
    pretends: bool = False
    """Whether workers would only pretend to train; torch, devices and data were then not examined."""
    host_reports: tuple[HostReport, ...] = ()
    device_reports: tuple[DeviceReport, ...] = ()
    data_report: DataReport | None = None
    """None if the data was not read in time."""
    clocks: Mapping[str, ClockReading] = field(default_factory=dict)
    """The clock of each other host compared with the master's, by host."""
    silent: tuple[str, ...] = ()
    """Ranks that did not answer in time."""
    wait_seconds: float = 0.0
    """Time limit of the examination in seconds."""
