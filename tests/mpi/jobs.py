"""Real jobs under a real mpiexec: starting them, finding their processes, waiting for their journal."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from aiperf.journal.file import JournalReader
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from tests.house.tree import ROOT

TINY = Path(__file__).parent / "tiny.toml"
TINY_TEXT = Path(__file__).parent / "tiny_text.toml"
QUICK = Path(__file__).parent / "quick"
WORKER = "aiperf.training.worker_process"
"""A module that is started, in a command line."""
PROGRAM = "from aiperf.start import main; raise SystemExit(main())"
BEGUN_SECONDS = 300.0  # for the clock to run, on a machine with other things to do
END_SECONDS = 300.0


@dataclass(frozen=True)
class Mpi:
    """An MPI with its mpiexec, and a Python whose mpi4py takes it."""

    name: str
    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "python")

    def command(self, num_ranks: int, *program: str, options: tuple[str, ...] = ()) -> list[str]:
        """The words that start a program on ranks, under `timeout`, so that no stuck launcher is left."""
        own = ["--oversubscribe"] if self.name == "openmpi" else []
        mpiexec = [str(self.folder / "mpiexec"), "-n", str(num_ranks), "--bind-to", "none"]
        return ["timeout", "-k", "5", "900", *mpiexec, *own, *options, *program]

    def run(self, num_ranks: int, *words: object, options: tuple[str, ...] = ()) -> list[str]:
        """The words that start `aiperf-hpc` on ranks."""
        program = (self.python, "-c", PROGRAM, *map(str, words))
        return self.command(num_ranks, *program, options=options)


OPEN_MPI = Mpi("openmpi", Path(sys.executable).parent)
MPICH = Mpi("mpich", Path(os.environ.get("AIPERF_MPICH", ROOT / ".venv-mpich")) / "bin")
FAULT_TOLERANT = ("--with-ft", "ulfm")


def tiny(directory: Path, minutes: float, *more: object, preset: Path = TINY) -> list[object]:
    """The words of a run of a tiny preset; with 0 minutes only its number of trials ends it."""
    limit = ["--minutes", minutes] if minutes else ["--set", "limits.minutes=0"]
    return ["run", "--preset", preset, "--directory", directory, *limit, *more]


@dataclass
class Job:
    """A launcher and all that it started."""

    process: subprocess.Popen[bytes]
    mark: str
    output: Path
    directory: Path

    def journal(self) -> str:
        path = RunFiles(self.directory).journal
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def wait_for(self, words: str, seconds: float = BEGUN_SECONDS, count: int = 1) -> float:
        """Until this many lines of the journal hold these words; the monotonic time then."""
        until = time.monotonic() + seconds
        while self.journal().count(words) < count:
            assert time.monotonic() < until, f"no {words} in {seconds} s; {self.text()}"
            assert self.process.poll() is None, f"it ended before {words}; {self.text()}"
            time.sleep(0.02)
        return time.monotonic()

    def end(self, seconds: float = END_SECONDS) -> int:
        """Waits for the launcher: its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            last = self.journal().splitlines()[-3:]
            raise AssertionError(f"no end in {seconds} s; {self.text()}; {last}") from None

    def gone(self, seconds: float = 30.0) -> float:
        """Waits until no process of the job is left; the seconds that it took."""
        began = time.monotonic()
        while alive := self.processes():
            assert time.monotonic() - began < seconds, alive
            time.sleep(0.1)
        return time.monotonic() - began

    def text(self) -> str:
        """What was printed, progress apart, and what the workers wrote."""
        logs = "".join(f"\n{path.name}: {path.read_text()}" for path in self.directory.glob("logs/*.log"))
        return self.output.read_text(encoding="utf-8", errors="replace") + logs

    def processes(self) -> list[psutil.Process]:
        """All that carry the mark of this job in their environment, the launcher apart."""
        return [
            process
            for process in psutil.process_iter()
            if _environment(process).get("AIPERF_TEST_MARK") == self.mark
        ]

    def launcher(self) -> psutil.Process:
        """The mpiexec that `timeout` started."""
        (launcher,) = psutil.Process(self.process.pid).children()
        return launcher

    def rank(self, number: int) -> psutil.Process:
        """The process of a rank, as the launcher started it."""
        for process in self.processes():
            environment = _environment(process)
            rank = environment.get("OMPI_COMM_WORLD_RANK", environment.get("PMI_RANK"))
            if rank == str(number) and WORKER not in process.cmdline():
                return process
        raise AssertionError(f"there is no rank {number}; {self.text()}")

    def rank_after(self, number: int, seconds: float) -> psutil.Process:
        """The process of a rank, so long after the clock was started."""
        released = self.wait_for('"Released"')
        found = self.rank(number)  # to look for it takes seconds of a busy machine
        time.sleep(max(0.0, released + seconds - time.monotonic()))
        return found

    def master(self) -> psutil.Process:
        """Rank 0, or the one process that was started."""
        alone = psutil.Process(self.process.pid)
        return alone if "aiperf" in alone.cmdline() else self.rank(0)

    def workers(self) -> list[psutil.Process]:
        """All processes that train."""
        return [each for each in self.processes() if WORKER in each.cmdline()]

    def worker(self, number: int) -> psutil.Process:
        """The process that trains for a rank."""
        return next(child for child in self.rank(number).children() if WORKER in child.cmdline())


def _environment(process: psutil.Process) -> dict[str, str]:
    """Empty for one that has ended, or is another user's."""
    try:
        return process.environ()
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return {}


def run_of(ranks: int, *words: object) -> list[str]:
    """One process and what it starts, or this many under mpiexec."""
    if ranks > 1:
        return OPEN_MPI.run(ranks, *words, "--devices-per-trial", 1)
    return [sys.executable, "-m", "aiperf", *map(str, words)]


@contextmanager
def started(
    command: list[str], directory: Path, output: Path | None = None, **environment: str
) -> Iterator[Job]:
    """The job, of which nothing is left afterwards; what it prints goes to a file beside its directory, or to
    `output`."""
    mark, output = uuid.uuid4().hex, output or directory.with_suffix(".out")
    with output.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=environ(AIPERF_TEST_MARK=mark, **environment),
        )
    job = Job(process, mark, output, directory)
    try:
        yield job
    finally:
        for left in job.processes():
            with suppress(psutil.NoSuchProcess):  # it may end by itself meanwhile
                left.kill()
        process.kill()
        process.wait()


def environ(**more: str) -> dict[str, str]:
    """The environment of a job: this checkout, a short control, one thread per rank."""
    path = os.pathsep.join([str(ROOT), str(QUICK), os.environ.get("PYTHONPATH", "")])
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return os.environ | allowed | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | more


def told(directory: Path) -> Replay:
    """A run in its journal so far, which must not contradict itself."""
    found = Replay()
    for line in JournalReader(RunFiles(directory).journal).new_lines():
        found.add_line(line)
    assert found.faults == []
    assert found.broken == []
    return found


def endings(replay: Replay) -> list[str | None]:
    """Why each leg ended; None for one that was cut off."""
    return [leg.ended and leg.ended.reason for leg in replay.legs]
