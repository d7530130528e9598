"""The interface of a scheduler: directives, variables, the words of its commands, and the launchers that
start the ranks.

The words of a launcher are shell text: `$hosts` names a file with the host of every rank, one per line;
`$nodes` is the number of nodes, `$devices` that of the devices of one node, `$cores` that of the cores of a
rank.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum

from aiperf.errors import ConfigError
from aiperf.host import variables
from aiperf.host.programs import rows
from launch.job import Job
from launch.site import Mpi, Site
from nas.frozen import frozen

Answer = Callable[..., str]
"""Runs the words of a command, and returns what it prints; nothing if it fails."""


COUNT = '"$(wc -l <"$hosts")"'
"""Shell text for the number of ranks: the lines of the file of hosts."""
QSUB_AGAIN = 'AIPERF_DIRECTORY=$(printf %q "$directory") qsub -v AIPERF_DIRECTORY'
"""Words with which `qsub` continues a run. It takes the variable by its name alone, because a comma in a
value would begin the next variable (qsub(1) of PBS and of Grid Engine)."""
REMOVE_HOSTS = "trap 'rm -f \"$hosts\"' EXIT"
"""Line after which that file is removed at the end of the script."""


@frozen
class Launcher:
    """A command that starts one process on each host of a list."""

    name: str
    ranks: Callable[[Mpi], list[str]]
    """The words before the program: one rank for each line of the host file."""
    once_a_node: tuple[str, ...]
    """The words before a command that runs once on every node."""
    rank_variables: tuple[str, str] = ("", "")
    """Variables in which a scheduler's own launcher gives a rank its number and the number of ranks."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to export before it starts."""
    why: str = ""
    """The reason for these variables, as a comment of the script."""
    warn: str = 'kill -USR1 "$run"'
    """Shell line that passes a warning on to the ranks, which the process $run started."""


def _of_mpi(name: str) -> Launcher:
    """Open MPI, up to 4 and from 5 on, binds a rank to one core or to a part of the node; the ranks of this
    program share the cores out themselves. On a host that is listed once, it would start a rank for each
    core. Other MPIs do not read these variables."""
    return Launcher(
        name,
        lambda mpi: [name, "-n", COUNT, "--hostfile", '"$hosts"'],
        (name, "-n", '"$nodes"', "--hostfile", '"$once"'),
        environment={
            "OMPI_MCA_hwloc_base_binding_policy": "none",
            "PRTE_MCA_hwloc_default_binding_policy": "none",
            "OMPI_MCA_orte_set_default_slots": "1",
            "PRTE_MCA_prte_set_default_slots": "1",
        },
        why="Open MPI starts a rank for each line of the list of hosts, and must not bind it to a core.",
    )


TORCHRUN = Launcher(
    "torchrun",
    # A warning would kill it before it reaches any rank.
    lambda mpi: [
        'bash -c \'trap "" USR1 USR2; exec "$@"\' ranks',
        "torchrun",
        "--standalone",
        "--nproc-per-node=$((devices + 1))",
        "--no-python",
    ],
    once_a_node=(),
    warn='pkill -USR1 -P "$run"',
)
"""The launcher for one node, where no MPI is needed."""

LAUNCHERS = (_of_mpi("mpiexec"), _of_mpi("mpirun"), TORCHRUN)
"""Launchers that work under every scheduler and without one."""


class JobState(Enum):
    """The state of a job, as its scheduler reports it."""

    PENDING = "pending"
    RUNNING = "running"
    GONE = "gone"
    """The scheduler does not know it any more, or knows that it has ended."""


@frozen
class JobStates:
    """The answer of a scheduler that was asked for the states of jobs."""

    known: Mapping[str, JobState]
    """State by the id of the job."""
    skipped: tuple[str, ...] = ()
    """Parts of the answer that are not the state of a job."""


class Scheduler(ABC):
    """One scheduler. Everything is text or words; nothing here runs a command."""

    name: str
    """Its name in the journal, before the job's number."""
    title: str
    """Its name as its makers write it."""
    ending: str
    """Ending of the scripts."""
    mark: str
    """Text that begins the line of a directive."""
    account: str
    """Text that begins the option for the account."""
    partition: str
    """Text that begins the option that says where a job runs."""
    size: str = "number of nodes and time limit"
    """What the script says about the directive of a job's size and limit."""
    job_id: str
    """The variable that holds the job's id, which stays the same when the job is queued again. A process with
    this variable is assumed to be in such a job, so no other scheduler may set it."""
    element: str = ""
    """The variable that holds an array's element; empty if a script cannot be submitted as an array."""
    array_id: str = ""
    """The variable that holds what all elements of an array have in common."""
    hosts: str
    """A command that prints the job's hosts in order, one per line."""
    nodes: str
    """Shell text for the number of the job's nodes."""
    by_hand: str = ""
    """The command that submits a script by its name, followed by options of the run; empty if a script cannot
    be given any."""
    launcher: Launcher | None = None
    """Its own launcher, if it can start ranks itself."""
    workdir: str = ""
    """A line that changes to the folder in which the job was submitted, if the scheduler does not start it
    there."""
    warns: bool = True
    """Whether it can send a signal before the limit."""
    warnings: str = "USR1 TERM"
    """The signals with which it warns the batch script."""
    waits: bool = True
    """Whether a job can be told to begin after others."""
    running: Container[object]
    """What the scheduler's commands call the states of a job that has its nodes."""
    pending: Container[object]
    """The same of a job that still waits for them, or waits again."""
    has_mpi: bool = True
    """Whether its ranks meet by MPI, and not by a secret."""
    option_help: str = ""
    """What the help says of the option that chooses it, if it is another form of a scheduler's jobs."""
    done: Sequence[str] = ()
    """Shell lines after a complete run."""
    requeue: Sequence[str] = ()
    """Shell lines that queue the job again when the run was stopped in time. They may set `code`, with which
    the script then exits."""

    def __init_subclass__(cls) -> None:
        """Refuses a scheduler that lacks something, when its file is imported: otherwise the first job that
        needs it would."""
        lacking = [
            name
            for name in (*Scheduler.__annotations__, *sorted(Scheduler.__abstractmethods__))
            if not hasattr(cls, name) or getattr(getattr(cls, name), "__isabstractmethod__", False)
        ]
        if lacking:
            raise TypeError(
                f"the scheduler {cls.__name__} ({cls.__module__}) lacks {', '.join(lacking)}; "
                "launch/scheduler.py says what they are"
            )

    @abstractmethod
    def options(self, site: Site, job: Job) -> list[str]:
        """The options of a job, one directive each: first its name, second its size and limit, which a person
        edits, then the rest."""

    def directives(self, site: Site, job: Job) -> list[str]:
        """The lines at the head of a script."""
        queue = site.queue
        where = [f"{self.account}{queue.account}"] * bool(queue.account)
        where += [f"{self.partition}{queue.partition}"] * bool(queue.partition)
        name, size, *others = self.options(site, job)
        lines = [f"{self.mark} {name}"]
        if where:
            lines += marked(f"{self.mark} {' '.join(where)}", 1, "account and partition")
        lines += marked(f"{self.mark} {size}", 2, self.size)
        return lines + [f"{self.mark} {option}" for option in (*others, *queue.options)]

    def document(self, site: Site, job: Job, title: Sequence[str], script: str) -> str:
        """What is submitted: the script below its title, unless the scheduler wants another form."""
        return "\n".join(["#!/usr/bin/env bash", *title, script])

    def host_lines(self) -> list[str]:
        """Lines that make the file `$hosts` with the host of each rank, and remove it at the end."""
        return [
            "# One rank per device, plus one on the first node: the master, which has no device.",
            "hosts=$(mktemp)",
            f'{self.hosts} | head -n "$nodes" |',
            '    awk -v devices="$devices" \'{ for (i = (NR > 1); i <= devices; i++) print }\' >"$hosts"',
            REMOVE_HOSTS,
        ]

    def rank_options(self, site: Site) -> list[str]:
        """Options of the launcher that depend on the site."""
        return list(site.mpi.options)

    def devices(self, site: Site) -> list[str]:
        """Lines that set `devices`, the number of devices of a node."""
        return [f"devices={site.devices.per_node}"]

    def cores(self, site: Site) -> list[str]:
        """Lines that set `cores`, the number of cores of a rank."""
        return [f"cores={site.devices.cores_per_rank}"]

    def launchers(self) -> Iterable[Launcher]:
        """The launchers that can start ranks in its jobs."""
        return (each for each in (self.launcher, *LAUNCHERS) if each)

    def chosen_launcher(self, mpi: Mpi) -> Launcher:
        """The launcher that the site names. Raises ConfigError for one that this scheduler does not have."""
        known = {each.name: each for each in self.launchers()}
        if mpi.launcher not in known:
            raise ConfigError(
                f"mpi.launcher is {mpi.launcher!r}; under {self.name} it must be one of {', '.join(known)}"
            )
        return known[mpi.launcher]

    def current(self, environment: Mapping[str, str]) -> str:
        """The id of the job around this process; empty outside of one."""
        return variables.word(environment, self.job_id)

    @abstractmethod
    def submit(self, after: Sequence[str] = ()) -> list[str]:
        """The words that submit the script on their standard input, to begin after the end of the jobs
        `after`, whatever it was."""

    @abstractmethod
    def submitted(self, answer: str) -> str:
        """The job's id in what `submit` printed. Raises ValueError if there is none."""

    @abstractmethod
    def ask(self, jobs: Sequence[str]) -> list[str]:
        """The words that ask for the states of jobs."""

    @abstractmethod
    def states(self, answer: str) -> JobStates:
        """The states of the jobs in what `ask` printed; a job that is missing there is GONE. Raises
        ValueError for an answer of another form."""

    def state(self, name: object) -> JobState:
        """The state that the scheduler's commands call so; GONE for any other name."""
        if name in self.pending:
            return JobState.PENDING
        return JobState.RUNNING if name in self.running else JobState.GONE

    @abstractmethod
    def seconds_left(self, environment: Mapping[str, str], now: float, answer: Answer) -> float | None:
        """Seconds to the end of the job around this process, whose id is in `environment`; None if its limit
        cannot be found out. `now` is the time of day in seconds since 1970."""


def marked(line: str, number: int, what: str) -> list[str]:
    """A line that a person edits, below a comment: not every scheduler accepts a comment next to a
    directive."""
    return [f"# EDIT {number}: {what}", line]


def clock_seconds(text: str) -> float | None:
    """The seconds in days-hours:minutes:seconds, of which only the last is required; None for anything
    else."""
    days, _, clock = text.rpartition("-")
    parts = [variables.number(part) for part in (days or "0", *clock.split(":"))]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or len(parts) > 4:
        return None  # UNLIMITED, INVALID, NOT_SET
    seconds = 0
    for part in known[1:]:
        seconds = 60 * seconds + part
    return float(seconds + 86400 * known[0])


def submitted_id(tool: str, answer: str, form: str) -> str:
    """The id of a job in the last line of this form, because a site may print others before. Raises
    ValueError if there is none."""
    told = rows(answer, form).found
    if not told:
        raise ValueError(f"{tool} did not print a job id: {answer.strip()!r:.200}")
    return told[-1][1]
