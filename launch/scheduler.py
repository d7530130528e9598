"""What differs between schedulers: directives, variables, and the words of their commands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum

from launch.job import Job
from launch.site import Site


class JobState(Enum):
    """Of a job, as its scheduler tells it."""

    PENDING = "pending"
    RUNNING = "running"
    GONE = "gone"
    """The scheduler does not know it any more, or knows that it has ended."""


class Scheduler(ABC):
    """One scheduler. Everything is text or words; nothing here runs a command."""

    name: str
    title: str
    """As its makers call it."""
    ending: str
    """Of the scripts."""
    job_id: str
    """The variable that holds it; it stays the same when the job is queued again."""
    element: str
    """The variable that holds an array's element."""
    hosts: str
    """A command that prints the job's hosts, a line each, in order."""
    nodes: str
    """Shell text for the number of the job's nodes."""
    arguments: bool = False
    """Whether a script can be given arguments when it is submitted."""
    srun: bool = False
    """Whether its own launcher starts ranks."""
    workdir: str = ""
    """A line that goes to where the job was submitted, where the scheduler does not go there itself."""
    warned: bool = True
    """Whether it can send a signal before the limit."""
    requeue: Sequence[str] = ()
    """Lines that queue the job again when it was stopped in time."""

    @abstractmethod
    def directives(self, site: Site, job: Job) -> list[str]:
        """The lines at the head of a script."""

    def devices(self, site: Site) -> list[str]:
        """Lines that set `devices`, the number of devices of a node."""
        return [f"devices={site.devices.per_node}"]

    def cores(self, site: Site) -> list[str]:
        """Lines that set `cores`, the number of cores of a rank."""
        return [f"cores={site.devices.cores_a_rank}"]

    @abstractmethod
    def submit(self, after: Sequence[str] = ()) -> list[str]:
        """The words that submit the script on their standard input, to begin after the end of the jobs
        `after`, whatever it was."""

    @abstractmethod
    def submitted(self, answer: str) -> str:
        """The job's id in what `submit` printed. Raises ValueError where there is none."""

    @abstractmethod
    def ask(self, jobs: Sequence[str]) -> list[str]:
        """The words that ask for the states of jobs."""

    @abstractmethod
    def states(self, answer: str) -> Mapping[str, JobState]:
        """Of the jobs in what `ask` printed; a job that is not there is GONE."""


def marked(line: str, number: int, what: str) -> list[str]:
    """A line that a person edits, below its mark: not every scheduler takes a comment beside a directive."""
    return [f"# EDIT {number}: {what}", line]
