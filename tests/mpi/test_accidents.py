"""A worker killed before the clock runs, a run directory that goes, a master that stands still."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from aiperf.journal.run_files import RunFiles
from aiperf.rules.verdict import judge
from tests.mpi.checked import finished
from tests.mpi.jobs import run_of, started, stop, tiny

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]

NOTICED_SECONDS = 60.0  # of which the master needs a few, and its workers some to leave
STALL_SECONDS = 36.0


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "moment"), [(1, "LegBegan"), (3, "CeilingMeasured")])
def test_a_worker_that_is_killed_before_the_clock_is_started_again(
    ranks: int, moment: str, directory: Path
) -> None:
    with started(run_of(ranks, *tiny(directory, 0.15, "--device", "cpu")), directory) as job:
        job.wait_for(f'"{moment}"')
        while not (workers := job.workers()):
            time.sleep(0.01)
        workers[0].kill()
        assert len(finished(job).leg.losses) == 1
        assert "was killed by signal 9" in job.text()
        assert "it is started again" in job.text()


@pytest.mark.slow
def test_a_run_whose_directory_is_renamed_ends_and_says_so(directory: Path) -> None:
    """What else may happen to it: tests/aiperf/journal/test_file.py."""
    with started(run_of(1, *tiny(directory, 5, "--device", "cpu")), directory) as job:
        job.wait_for('"Closed"')
        directory.rename(directory.with_name("elsewhere"))
        assert job.end(NOTICED_SECONDS) == 1, job.text()
        assert "elsewhere/journal.jsonl now; put it back and resume the run" in job.text()
        assert "VALID" not in job.text()


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "minutes"), [(1, 0.4), (3, 1.0)])
def test_a_master_that_stands_still_makes_no_run_invalid(ranks: int, minutes: float, directory: Path) -> None:
    """Also beyond its deadline, and with groups that have run out of work."""
    with started(run_of(ranks, *tiny(directory, minutes, "--device", "cpu")), directory) as job:
        job.wait_for('"Closed"', count=2)
        stop(job.master())
        time.sleep(STALL_SECONDS)
        job.master().send_signal(signal.SIGCONT)
        replay = finished(job)
    assert [round(stall.seconds) >= STALL_SECONDS for stall in replay.leg.stalls] == [True]
    assert replay.leg.losses == []
    (found,) = [f for f in judge(replay, RunFiles(directory)).findings if f.rule == "span"]
    assert found.outcome.value == "passed", found
