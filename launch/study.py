"""A scaling study: one configuration at several sizes, one job for each, then a table. The files are read and
the jobs submitted by `aiperf.commands`; here is what they are called and what follows from them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from hashlib import sha256
from pathlib import Path

from aiperf.errors import ConfigError, JournalError
from aiperf.journal.replay import Replay
from aiperf.wording import counted
from launch.job import Job
from launch.scheduler import JobState
from nas.frozen import frozen
from nas.record import RecordError, decode, encode


@frozen
class Study:
    """What was requested; the configuration is another file in the same folder."""

    scheduler: str
    """Name of the scheduler, as the sub-command of `launch`."""
    nodes: tuple[int, ...]
    """The sizes, ascending."""
    hours: float
    """Length of each timed span in hours."""
    options: tuple[str, ...]
    """Options of `aiperf-hpc run` on how the ranks work; what they run is in the configuration."""
    config_hash: str
    """SHA-256 of the configuration's file: all sizes must run the same."""

    def __post_init__(self) -> None:
        """Raises ConfigError for sizes that are not rising whole numbers."""
        if not self.nodes or min(self.nodes) < 1:
            raise ConfigError("--nodes: give whole numbers from 1 up, such as 4,8,16")
        if sorted(set(self.nodes)) != list(self.nodes):
            raise ConfigError("--nodes: give each size once, in increasing order")

    def job(self, nodes: int, files: StudyFiles, ranked: bool) -> Job:
        """The job of one size. Its random seed is its place among the sizes, from 1; that of ranked runs is
        pinned and in the configuration."""
        seed = () if ranked else ("--random-seed", str(self.nodes.index(nodes) + 1))
        return Job(
            nodes=nodes,
            hours=self.hours,
            name=f"{files.name}-{nodes}",
            options=("--preset", str(files.config), *seed, *self.options),
            directory=str(files.run(nodes)),
            ranked=ranked,
        )

    def table_job(self, files: StudyFiles) -> Job:
        """The job that makes the table once all others have ended: one process, no timed span."""
        return Job(nodes=1, hours=0.0, name=f"{files.name}-table", alone=False)


@frozen
class StudyFiles:
    """The directory of a study and what lies in it."""

    directory: Path
    ending: str = "sbatch"
    """Ending of its scripts."""

    @property
    def name(self) -> str:
        """Name of its jobs: that of the directory, with the characters that schedulers accept."""
        return re.sub(r"[^A-Za-z0-9_.-]", "-", self.directory.name).lstrip("-_.") or "study"

    @property
    def study(self) -> Path:
        """File of the request."""
        return self.directory / "study.json"

    @property
    def config(self) -> Path:
        """File of the configuration, the same for all sizes."""
        return self.directory / "config.toml"

    @property
    def table(self) -> Path:
        """Folder of the table and its figure."""
        return self.directory / "table"

    @property
    def table_script(self) -> Path:
        """Script of the job that makes the table."""
        return self.directory / f"table.{self.ending}"

    def size(self, nodes: int) -> Path:
        """Folder of everything of one size."""
        return self.directory / f"nodes-{nodes:04d}"

    def run(self, nodes: int) -> Path:
        """Directory of the run of one size."""
        return self.size(nodes) / f"{nodes}-nodes"

    def script(self, nodes: int) -> Path:
        """Batch script of one size."""
        return self.size(nodes) / f"job.{self.ending}"

    def job_id(self, nodes: int) -> Path:
        """File with the id of the job that was submitted last."""
        return self.size(nodes) / "job.id"


class SizeState(Enum):
    """How far one size is."""

    DONE = "done"
    """Its run has its test."""
    RUNNING = "running"
    """Its job has its nodes."""
    PENDING = "pending"
    """Its job waits for nodes."""
    FAILED = "failed"
    """Its job is gone, and its run is not complete."""
    MISSING = "missing"
    """It was never submitted."""


@frozen
class StudySize:
    """One size of a study and how far it is."""

    nodes: int
    standing: SizeState
    told: str = ""
    """Why it failed, or how far it is."""

    @property
    def to_submit(self) -> bool:
        """Whether a job must be submitted for it, for the first time or again."""
        return self.standing in (SizeState.FAILED, SizeState.MISSING)


def config_hash(text: str) -> str:
    """SHA-256 of the configuration's text, by which a change of the file is noticed."""
    return sha256(text.encode()).hexdigest()


def study_json(study: Study) -> str:
    """The content of study.json."""
    return json.dumps(encode(study), indent=1) + "\n"


def study_from_json(text: str, where: Path) -> Study:
    """Raises ConfigError. `where` is named in the error."""
    try:
        return decode(Study, json.loads(text))
    except (RecordError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not a scaling study: {error}") from None


def standing(
    nodes: int, run: Replay | JournalError | None, job: str, states: Mapping[str, JobState]
) -> StudySize:
    """How far one size is, by its run so far, its last job's id ("" for none), and the scheduler's states.
    The journal is believed before the scheduler: a run that has its test is done, whatever became of its
    job."""
    if isinstance(run, Replay) and run.tested is not None:  # the test is the last line of a run
        return StudySize(nodes, SizeState.DONE)
    state = states.get(job, JobState.GONE)
    if job and state is not JobState.GONE:
        return StudySize(
            nodes, SizeState.PENDING if state is JobState.PENDING else SizeState.RUNNING, f"job {job}"
        )
    if not job:
        return StudySize(nodes, SizeState.MISSING)
    return StudySize(nodes, SizeState.FAILED, f"job {job} is gone; {_reached(run)}")


def sizes_text(sizes: Sequence[StudySize]) -> str:
    """One line per size with its state and its reason."""
    return "\n".join(
        f"{counted(size.nodes, 'node'):>11}  {size.standing.value:<8} {size.told}".rstrip() for size in sizes
    )


def _reached(run: Replay | JournalError | None) -> str:
    """How far a run came whose job is gone."""
    if isinstance(run, JournalError):
        return str(run)
    if run is None or not run.legs:
        return "its run did not start; see its output"
    ended = run.leg.ended
    how = f"ended: {ended.reason}" if ended else "was killed"
    return f"its run {how} after {run.span_seconds:.0f} s of span"
