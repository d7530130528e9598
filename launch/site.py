"""What a batch script must know of a machine, from a TOML file that a person writes once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from aiperf import toml
from aiperf.errors import ConfigError
from aiperf.os_error import unreadable
from launch import shell_text
from launch.price import Price, parse_price
from nas.bounded import read_text
from nas.frozen import frozen
from nas.record import decode

LONGEST_DOCTOR_SECONDS = 1200
"""Most of the time that a job requests for its start (`launch.job.START_MINUTES`); the rest is for staging
and initialisation."""


@frozen
class Queue:
    """Account, partition and further options of every job."""

    account: str = ""
    """Account that jobs are charged to; PBS, LSF and SGE call it a project."""
    partition: str = ""
    """Partition that jobs run in; PBS, LSF and SGE call it a queue."""
    options: tuple[str, ...] = ()
    """Further options of the job, one directive each, such as --constraint=h100."""
    parallel_environment: str = ""
    """SGE's parallel environment, which places the slots of a job; other schedulers do not read it."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a value that would end its directive."""
        shell_text.name("queue.account", self.account)
        shell_text.name("queue.partition", self.partition)
        shell_text.name("queue.parallel_environment", self.parallel_environment)
        for option in self.options:
            shell_text.line("queue.options", option)


@frozen
class Devices:
    """The accelerators of one node, and its cores."""

    per_node: int = 1
    """Devices per node, one for each rank that trains; on nodes without accelerators, ranks that share the
    cores."""
    request: str = "gpus"
    """How devices are requested. gpus: by the scheduler's own option for GPUs. none: not at all. Otherwise
    the name of a resource, such as npu."""
    cores_per_node: int = 0
    """Cores of a node, under SGE its slots. PBS and SGE need the number in the request, and `$cores` in
    `mpi.options` follows from it; Slurm reports it. 0: not known."""

    def __post_init__(self) -> None:
        """Raises ConfigError for fewer than one device, or a resource whose name no directive can hold."""
        if self.per_node < 1:
            raise ConfigError(f"devices.per_node is {self.per_node}; it must be at least 1")
        if self.cores_per_node < 0:
            raise ConfigError(f"devices.cores_per_node is {self.cores_per_node}; it must be at least 0")
        if not self.request:
            raise ConfigError('devices.request is empty; it is "gpus", "none" or the name of a resource')
        shell_text.name("devices.request", self.request)

    @property
    def cores_per_rank(self) -> int:
        """Cores of one rank: those of a node are shared evenly by the ranks that train and, on the first
        node, the master. 0: not known."""
        return self.cores_per_node // (self.per_node + 1)


@frozen
class Mpi:
    """The launcher that starts the ranks, and its options."""

    launcher: str = "srun"
    """srun, mpiexec or mpirun; torchrun inside one node, where no MPI is needed."""
    plugin: str = "pmix"
    """Value of srun --mpi; `srun --mpi=list` shows the available ones."""
    options: tuple[str, ...] = ()
    """Further options of the launcher, as shell text."""

    def __post_init__(self) -> None:
        """Raises ConfigError; whether a scheduler has the launcher is asked when a script is made."""
        shell_text.name("mpi.plugin", self.plugin)
        for option in self.options:
            shell_text.words("mpi.options", option)


@frozen
class Container:
    """A container image that holds the program; without one, the program is that of the environment."""

    image: str = ""
    """Path of the image; empty: none."""
    command: str = "apptainer"
    """The program that runs it, such as apptainer or singularity."""
    options: tuple[str, ...] = ("--nv",)
    """Options of its `exec`, as shell text: they make devices and folders visible inside, as --bind
    "$PWD"."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a path or options that shell would read as something else."""
        shell_text.path("container.image", self.image)
        for key, value in [("command", self.command), *(("options", option) for option in self.options)]:
            shell_text.words(f"container.{key}", value)


@frozen
class Scratch:
    """A folder on each node's own disk."""

    directory: str = ""
    """Folder in which every node creates one for the job. That is TMPDIR of the run, and is removed at the
    end. May hold variables, such as /local/$USER."""
    stage: str = ""
    """A shell command, run once on every node before the run: it brings images into $scratch."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a command without a folder to stage into."""
        if self.stage and not self.directory:
            raise ConfigError("scratch.stage is given without scratch.directory; set the target directory")
        shell_text.path("scratch.directory", self.directory)
        shell_text.command("scratch.stage", self.stage)


@frozen
class Pods:
    """What a job under Kubernetes needs besides; other schedulers do not read it."""

    image: str = ""
    """The image that holds the program, an MPI and sshd, such as registry.example.org/aiperf-hpc:0.1."""
    claim: str = ""
    """The PersistentVolumeClaim with the data and the runs, which all pods write to (ReadWriteMany)."""
    mount: str = "/work"
    """Where the claim is mounted; paths of the run are relative to it."""
    shared_memory: str = "16Gi"
    """Limit of /dev/shm, through which the processes of a node pass batches and gradients."""
    rdma: str = ""
    """The resource of the network's device plugin, such as rdma/hca_shared_devices_a; empty: none."""

    def __post_init__(self) -> None:
        """Raises ConfigError for values that a manifest, or Kubernetes, would refuse."""
        for key in ("image", "claim", "shared_memory", "rdma"):
            shell_text.name(f"kubernetes.{key}", getattr(self, key))
        shell_text.line("kubernetes.mount", self.mount)
        if not re.fullmatch(r"/(?!dev/)[^:]+", self.mount):
            raise ConfigError(
                f"kubernetes.mount is {self.mount!r}; it must be an absolute path without a colon, and "
                "neither / nor below /dev"
            )
        if not re.fullmatch(r"[1-9]\d*([KMGT]i?)?", self.shared_memory):
            raise ConfigError(
                f"kubernetes.shared_memory is {self.shared_memory!r}; it must be a size such as 16Gi"
            )


@frozen
class Site:
    """One machine."""

    queue: Queue = field(default_factory=Queue)
    devices: Devices = field(default_factory=Devices)
    mpi: Mpi = field(default_factory=Mpi)
    container: Container = field(default_factory=Container)
    scratch: Scratch = field(default_factory=Scratch)
    kubernetes: Pods = field(default_factory=Pods)
    modules: tuple[str, ...] = ()
    """Modules, loaded in this order after `module purge`."""
    setup: tuple[str, ...] = ()
    """Lines of shell that put `aiperf-hpc` on PATH, such as: source ~/venv/bin/activate"""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to export."""
    name: str = ""
    """Name of the machine, for the titles of reports: Cluster X."""
    owner: str = ""
    """Owner of the machine: Example University."""
    doctor_seconds: float = 0.0
    """Time limit in seconds of `aiperf-hpc doctor` before each run: more than its default of 50 if nodes or
    file systems start slowly. 0: the default."""
    price: str = ""
    """Price of a node for an hour, such as 12.5USD/node-hour, for `aiperf-hpc cost` and `report`."""

    @property
    def node_price(self) -> Price | None:
        """Price of a node for an hour; None if the site states none."""
        return parse_price("price", self.price) if self.price else None

    def __post_init__(self) -> None:
        """Raises ConfigError, which names the key of the file."""
        shell_text.line("name", self.name)
        shell_text.line("owner", self.owner)
        if not (self.doctor_seconds == 0 or 1 <= self.doctor_seconds <= LONGEST_DOCTOR_SECONDS):
            raise ConfigError(
                f"doctor_seconds is {self.doctor_seconds:g}; it must be 0, or 1 to {LONGEST_DOCTOR_SECONDS} "
                "seconds"
            )
        if self.price:
            parse_price("price", self.price)
        for module in self.modules:
            shell_text.line("modules", module)
        for own in self.setup:
            shell_text.command("setup", own)
        for name, value in self.environment.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ConfigError(f"environment.{name} is not a variable name; use letters, digits and '_'")
            shell_text.line(f"environment.{name}", value)


def load_site(path: Path) -> Site:
    """The site file there. Raises ConfigError."""
    try:
        return site_from_toml(read_text(path, toml.LARGEST_BYTES), str(path))
    except OSError as error:
        otherwise = "give a site file with --site, or create one: aiperf-hpc launch init-site"
        raise ConfigError(unreadable(error, path, otherwise)) from None


def site_from_toml(text: str, where: str) -> Site:
    """The site in the text of a file. Raises ConfigError, which names `where`, the key, and the known keys. A
    key that no class has is refused, so that a misspelt one is not ignored."""
    try:
        return decode(Site, toml.parsed(text))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {error}") from None
