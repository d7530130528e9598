"""The scheduler's warning: a clean stop, with a result, within half a minute."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mpi.checked import checked
from tests.mpi.jobs import OPEN_MPI, TINY, Job, Mpi, started

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]

CONTINUE = 75
"""What the command ends with: EX_TEMPFAIL, a further leg may come."""
CLEAN_SECONDS = 30.0


def stopped(mpi: Mpi, directory: Path, warn: Callable[[Job], None]) -> str:
    """What a run of two groups prints that is warned in the midst of its trials."""
    words = ["run", "--preset", TINY, "--directory", directory, "--minutes", 5, "--devices-per-trial", 1]
    with started(mpi.run(3, *words), directory) as job:
        job.wait_for('"Closed"', count=2)
        warn(job)
        warned = time.monotonic()
        code = job.end(CLEAN_SECONDS)
        print(f"{mpi.name}: ended after {time.monotonic() - warned:.1f} s")
        assert code == CONTINUE, job.text()
        text = job.text()
    replay = checked(directory)
    assert replay.leg.ended is not None
    assert replay.leg.ended.reason == "terminated"
    assert replay.tested is None, "the test images are for the end of the run"
    assert f" INCOMPLETE: the scheduler stopped the run in time; `aiperf-hpc resume {directory}`" in text
    return text


@pytest.mark.slow
def test_the_launcher_hands_on_sigusr1(mpi: Mpi, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    text = stopped(mpi, directory, lambda job: job.launcher().send_signal(signal.SIGUSR1))
    told = "the run ends and its result follows; if it does not, the job was killed: aiperf-hpc resume"
    assert f"aiperf-hpc: SIGUSR1: {told} {directory}\n" in text


def test_srun_signals_every_rank(tmp_path: Path) -> None:
    def every_rank(job: Job) -> None:
        for rank in (2, 1):
            for number in (signal.SIGUSR1, signal.SIGTERM):
                job.rank(rank).send_signal(number)
        job.rank(0).send_signal(signal.SIGTERM)

    stopped(OPEN_MPI, tmp_path / "run", every_rank)
