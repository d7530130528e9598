"""A batch job as it is requested: nodes, time, and the run in it."""

from __future__ import annotations

import math
import re
from dataclasses import field

from aiperf.errors import ConfigError
from launch.shell_text import line
from nas.frozen import frozen

WARNING_SECONDS = 120
"""Time before its limit at which a job is asked to stop: thirty seconds for that, the rest for slow ranks."""
MARGIN_SECONDS = 300.0
"""Time for initialisation before the span, and for the test and the summary after it. The batch scripts ask
for a warning two minutes before the limit, which Slurm may send a minute early: a span that fits must not get
it."""
START_MINUTES = 25.0
"""Time requested in addition to the span and `MARGIN_SECONDS`, for doctor, staging and initialisation, which
may take long if a thousand ranks import torch from one file system."""


@frozen
class Job:
    """One run under a scheduler, or the same run several times."""

    nodes: int
    """Number of nodes; the first one has the master in addition to its ranks."""
    hours: float
    """Length of the run's timed span in hours."""
    name: str = "aiperf-hpc"
    """Name of the job and beginning of the names of its files."""
    options: tuple[str, ...] = ()
    """Options of `aiperf-hpc run`: the preset, the data."""
    directory: str = ""
    """Directory of the run; empty: runs/ and the job's name and id."""
    repeat: int = 1
    """Number of runs of the same configuration, one after another."""
    ranked: bool = False
    """Whether the runs claim the class ranked, whose random seed is pinned. Else each of several has its
    own."""
    alone: bool = True
    """Whether it needs its nodes exclusively."""
    secret: str = field(default="", repr=False)
    """Secret by which ranks without MPI know each other; empty: they need none."""
    sizes: tuple[int, ...] = ()
    """Numbers of nodes that one job goes through, for weak scaling; empty: all of them, once."""

    def __post_init__(self) -> None:
        """Raises ConfigError, which names the option of `launch` that is wrong."""
        if self.nodes < 1:
            raise ConfigError(f"--nodes is {self.nodes}; it must be at least 1")
        if not 0 <= self.hours < math.inf:
            raise ConfigError(f"--hours is {self.hours}; it must be a duration above 0")
        if self.repeat < 1:
            raise ConfigError(f"--repeats is {self.repeat}; it must be at least 1")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", self.name):
            raise ConfigError(f"--name is {self.name!r}; use letters, digits, '-', '_' and '.'")
        for option in self.options:
            line("an option of the run", option)
        line("the directory of the run", self.directory)
        if self.sizes and max(self.sizes) > self.nodes:
            raise ConfigError(f"one of the sizes is {max(self.sizes)}; the job has {self.nodes} nodes")

    @property
    def pretends(self) -> bool:
        """Whether its workers pretend to train, so that a verdict other than VALID is no failure."""
        return any(option.partition("=")[0] == "--pretend" for option in self.options)

    @property
    def limit_seconds(self) -> int:
        """Time limit of the whole job in seconds, rounded up to whole minutes. Every size of a job that goes
        through several has the whole time."""
        one = self.hours * 3600 + MARGIN_SECONDS + START_MINUTES * 60
        return math.ceil(one * max(1, len(self.sizes)) / 60) * 60

    @property
    def span_node_hours(self) -> float:
        """Node-hours of all timed spans. A job that goes through several sizes holds all of its nodes at
        each."""
        return self.nodes * self.hours * max(1, len(self.sizes)) * self.repeat

    @property
    def limit_node_hours(self) -> float:
        """The most node-hours that may be charged for."""
        return self.nodes * self.limit_seconds / 3600 * self.repeat

    @property
    def clock(self) -> str:
        """The limit as hours:minutes:seconds."""
        minutes = self.limit_seconds // 60
        return f"{minutes // 60:02d}:{minutes % 60:02d}:00"
