"""The scheduler's warning: a clean stop, with a result, within half a minute."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiperf.wire.trial import State
from tests.aiperf.data.sets import write_folders
from tests.mpi.checked import checked, finished
from tests.mpi.jobs import WORKER, Job, Mpi, endings, run_of, started, tiny, told

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]

CONTINUE = 75
"""What the command ends with: EX_TEMPFAIL, a further leg may come."""
CLEAN_SECONDS = 30.0
STOPPED = "INCOMPLETE: the run was stopped by its scheduler or launcher"


@pytest.mark.slow
def test_the_launcher_hands_on_sigusr1(mpi: Mpi, directory: Path) -> None:
    with started(mpi.run(3, *tiny(directory, 5, "--devices-per-trial", 1)), directory) as job:
        job.wait_for('"Closed"', count=2)
        job.launcher().send_signal(signal.SIGUSR1)
        assert job.end(CLEAN_SECONDS) == CONTINUE, job.text()
        text = job.text()
    replay = checked(directory)
    assert endings(replay) == ["terminated"]
    assert replay.tested is None, "the test images are for the end of the run"
    told = "the run stops here and its result follows; if it does not, the job was killed"
    assert f"aiperf-hpc: SIGUSR1: {told}: `aiperf-hpc resume {directory}` continues it\n" in text
    assert f" {STOPPED}; `aiperf-hpc resume {directory}`" in text


def warn_all(job: Job, number: signal.Signals) -> list[str]:
    """As Slurm does to a step under proctrack/linuxproc: every process, whatever its session. The launcher is
    not ours. What was warned."""
    ours = [process for process in job.processes() if Path(process.cmdline()[0]).name.startswith("python")]
    names = [" ".join(process.cmdline()) for process in ours]
    for process in ours:
        process.send_signal(number)
    return names


@pytest.fixture(autouse=True)
def _terminal() -> Iterator[None]:
    """A process that was started under nohup ignores SIGHUP, and so does a run that it starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


EVERYWHERE = [(3, "TERM", "Closed"), (1, "HUP", "Closed")]  # USR1: tests/slurm/test_jobs.py
MORE = [
    (1, "USR1", "Closed"),
    *((ranks, "USR1", moment) for ranks in (1, 3) for moment in ("LegBegan", "RankReady", "CeilingMeasured")),
    *((ranks, name, "Began") for ranks in (1, 3) for name in ("INT", "TERM", "USR1", "HUP")),
]


@pytest.mark.parametrize(
    ("ranks", "name", "moment"),
    [*EVERYWHERE, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)],
)
def test_no_process_dies_of_a_warning_to_all_of_them(
    ranks: int, name: str, moment: str, directory: Path, tmp_path: Path
) -> None:
    """In training, and while they start: trials in flight are STOPPED, none is LOST, and `resume` or the same
    command goes on, which for the first cases test_kubernetes.py and tests/slurm/test_jobs.py show.
    The ranks hear it first, as srun may have it, and twice."""
    number, words = getattr(signal, f"SIG{name}"), tiny(directory, 0.25, "--device", "cpu")
    with started(run_of(ranks, *words), directory) as job:
        job.wait_for(f'"{moment}"', count=ranks if moment == "Closed" else 1)
        while len(job.workers()) < max(1, ranks - 1):  # they are started after the leg has begun
            time.sleep(0.01)
        for rank in [job.rank(number) for number in range(ranks - 1, 0, -1)]:
            for early in (signal.SIGUSR1, signal.SIGTERM):
                rank.send_signal(early)
        names = warn_all(job, number)
        assert sum(WORKER in name for name in names) == max(1, ranks - 1), names
        code = job.end(CLEAN_SECONDS)
        text = job.text()
    assert code == (130 if name == "INT" else CONTINUE), text
    found = told(directory)
    assert found.leg.losses == []
    assert not any(attempt.state is State.LOST for attempt in found.attempts), text
    if found.leg.released is None:
        assert f"{'interrupted' if name == 'INT' else 'terminated'} before the clock started" in text
        assert f"nothing is measured yet; `aiperf-hpc resume {directory}` starts it again" in text
        assert "its result follows" not in text
    elif code == CONTINUE:
        assert f" {STOPPED}; `aiperf-hpc resume {directory}`" in text
    if (ranks, name, moment) in EVERYWHERE:
        checked(directory)
        return
    if found.tested is None:  # Ctrl-C ends a run for good
        again = [*words, "--resume"] if name == "USR1" else ["resume", directory, "--device", "cpu"]
        with started(run_of(ranks, *again), tmp_path / "again") as job:
            assert job.end() == 0, job.text()
    assert checked(directory).tested is not None


@pytest.mark.slow
def test_ranks_that_a_command_started_by_itself_close_their_trials_when_it_is_killed(directory: Path) -> None:
    with started(run_of(1, *tiny(directory, 5, "--device", "cpu", "--devices", 2)), directory) as job:
        job.wait_for('"Closed"', count=2)
        job.process.kill()
        job.gone(CLEAN_SECONDS)
    replay = checked(directory)
    assert (endings(replay), replay.leg.losses) == (["terminated"], [])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["TERM", "USR1"])
def test_the_processes_that_decode_outlive_a_warning_and_the_test_ends_in_spite_of_one(
    name: str, directory: Path, tmp_path: Path
) -> None:
    number = getattr(signal, f"SIG{name}")
    write_folders(tmp_path / "images")
    data = ["--data", tmp_path / "images", "--set", "data.validation_examples=6"]
    data += ["--set", "data.loader_processes=2"]  # which decode
    words = ["--directory", directory, "--device", "cpu", "--minutes", 0.3]
    with started(run_of(1, "run", *data, *words), directory) as job:
        job.wait_for('"Closed"')
        names = warn_all(job, number)
        assert sum("forkserver" in name for name in names) >= 3, names  # the server and two that it forked
        assert any("resource_tracker" in name for name in names)
        assert any("aiperf.telemetry" in name for name in names)
        assert job.end(CLEAN_SECONDS) == CONTINUE, job.text()
    assert not any(attempt.state is State.LOST for attempt in told(directory).attempts)
    again = run_of(1, "resume", directory, "--device", "cpu")
    with started(again, directory, tmp_path / "again.out") as job:
        job.wait_for('"LegEnded"', count=2)
        warn_all(job, number)
        assert finished(job).tested is not None
