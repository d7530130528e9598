"""What a batch script must know of a machine, from a TOML file that a person writes once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiperf import toml
from aiperf.errors import ConfigError
from launch import words
from launch.price import Price, parse_price
from nas.bounded import read_text
from nas.record import decode


@dataclass(frozen=True)
class Queue:
    """What the scheduler asks of every job."""

    account: str = ""
    """Whom the job is charged to; PBS and LSF call it a project."""
    partition: str = ""
    """PBS and LSF call it a queue."""
    options: tuple[str, ...] = ()
    """Further options of sbatch, qsub or bsub, one directive each, as --constraint=h100."""

    def __post_init__(self) -> None:
        words.name("queue.account", self.account)
        words.name("queue.partition", self.partition)
        for option in self.options:
            words.line("queue.options", option)


@dataclass(frozen=True)
class Devices:
    """The accelerators of one node, and its cores."""

    per_node: int = 1
    """As many ranks train on a node; on nodes without accelerators, ranks that share the cores."""
    request: str = "gpus"
    """How the scheduler is asked for them. gpus: by its own option for GPUs. Otherwise the name of a
    resource, as npu. none: not at all."""
    cores_per_node: int = 0
    """PBS and LSF are asked for cores by number; Slurm tells them."""

    def __post_init__(self) -> None:
        if self.per_node < 1:
            raise ConfigError(f"devices.per_node is {self.per_node}; it must be at least 1")
        if self.cores_per_node < 0:
            raise ConfigError(f"devices.cores_per_node is {self.cores_per_node}; it must be at least 0")
        if not self.request:
            raise ConfigError('devices.request is empty; it is "gpus", "none" or the name of a resource')
        words.name("devices.request", self.request)

    @property
    def cores_a_rank(self) -> int:
        """Shared evenly by the ranks that train and, on the first node, the master. 0: not known."""
        return self.cores_per_node // (self.per_node + 1)


@dataclass(frozen=True)
class Mpi:
    """What starts the ranks."""

    launcher: str = "srun"
    """srun, mpiexec or mpirun; torchrun inside one node, where no MPI is needed."""
    plugin: str = "pmix"
    """Of srun --mpi: `srun --mpi=list` shows those there are."""
    options: tuple[str, ...] = ()
    """Further options of the launcher, as shell text."""

    def __post_init__(self) -> None:
        words.name("mpi.plugin", self.plugin)
        for option in self.options:
            words.words("mpi.options", option)


@dataclass(frozen=True)
class Container:
    """An image that holds the program; without one it is taken from the environment."""

    image: str = ""
    command: str = "apptainer"
    options: tuple[str, ...] = ("--nv",)
    """Of `exec`, as shell text: what lets devices and folders in, as --bind "$PWD"."""

    def __post_init__(self) -> None:
        words.path("container.image", self.image)
        for key, value in [("command", self.command), *(("options", option) for option in self.options)]:
            words.words(f"container.{key}", value)


@dataclass(frozen=True)
class Scratch:
    """A folder on each node's own disk."""

    directory: str = ""
    """In it a folder of the job's own is made on every node, TMPDIR of the run, and removed at the end. May
    hold variables, as /local/$USER."""
    stage: str = ""
    """A shell command, run once on every node before the run: it brings images into $scratch."""

    def __post_init__(self) -> None:
        if self.stage and not self.directory:
            raise ConfigError("scratch.stage is given without scratch.directory; set the target directory")
        words.path("scratch.directory", self.directory)
        words.command("scratch.stage", self.stage)


@dataclass(frozen=True)
class Site:
    """One machine."""

    queue: Queue = field(default_factory=Queue)
    devices: Devices = field(default_factory=Devices)
    mpi: Mpi = field(default_factory=Mpi)
    container: Container = field(default_factory=Container)
    scratch: Scratch = field(default_factory=Scratch)
    modules: tuple[str, ...] = ()
    """Loaded in this order, after `module purge`."""
    setup: tuple[str, ...] = ()
    """Lines of shell that make the command `aiperf-hpc` be found, as: source ~/venv/bin/activate"""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to export."""
    name: str = ""
    """What the machine is called, for the titles of reports: Cluster X."""
    owner: str = ""
    """Whose it is: Example University."""
    price: str = ""
    """What a node costs for an hour, as 12.5USD/node-hour, for `aiperf-hpc cost` and `report`."""

    @property
    def node_price(self) -> Price | None:
        """None where the site states none."""
        return parse_price("price", self.price) if self.price else None

    def __post_init__(self) -> None:
        words.line("name", self.name)
        words.line("owner", self.owner)
        if self.price:
            parse_price("price", self.price)
        for module in self.modules:
            words.line("modules", module)
        for own in self.setup:
            words.command("setup", own)
        for name, value in self.environment.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ConfigError(f"environment.{name} is not a variable name; use letters, digits and '_'")
            words.line(f"environment.{name}", value)


def load_site(path: Path) -> Site:
    """The site file there. Raises ConfigError."""
    try:
        return site_from_toml(read_text(path, toml.LARGEST_BYTES), str(path))
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}; give a site file with --site, or create one: aiperf-hpc launch "
            f"init-site"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: {error.reason}; a site file is text in UTF-8") from None


def site_from_toml(text: str, where: str) -> Site:
    """Raises ConfigError, which names `where`, the key, and the keys there are."""
    try:
        return decode(Site, toml.parsed(text))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {error}") from None
