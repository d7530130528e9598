"""A worker killed before the clock runs, a run directory that goes, a master that stands still."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aiperf.files import RunFiles
from aiperf.rules.verdict import judge
from tests.mpi.checked import checked
from tests.mpi.jobs import TINY, run_of, started, stop

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]

NOTICED_SECONDS = 60.0  # of which the master needs a few, and its workers some to leave
STALL_SECONDS = 36.0


def words(directory: Path, minutes: float, *more: object) -> list[object]:
    run = ["run", "--preset", TINY, "--directory", directory, "--minutes", minutes, "--device", "cpu"]
    return [*run, *more]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("moment", ["LegBegan", "RankReady", "CeilingMeasured"])
def test_a_worker_that_is_killed_before_the_clock_is_started_again(
    moment: str, ranks: int, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    with started(run_of(ranks, *words(directory, 0.15)), directory) as job:
        job.wait_for(f'"{moment}"')
        while not (workers := job.workers()):
            time.sleep(0.01)
        workers[0].kill()
        assert job.end() == 0, job.text()
        assert "was killed by signal 9" in job.text()
        assert "it is started again" in job.text()
    assert len(checked(directory).leg.losses) == 1


def removed(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)  # a worker may have written meanwhile


def renamed(directory: Path) -> None:
    directory.rename(directory.with_name("elsewhere"))


def without_journal(directory: Path) -> None:
    RunFiles(directory).journal.unlink()


def replaced(directory: Path) -> None:
    shutil.copytree(directory, copy := directory.with_name("copy"))
    removed(directory)
    copy.rename(directory)


GONE = [
    (removed, " is gone: nothing of the result was kept"),
    (renamed, "elsewhere/journal.jsonl now; put it back and resume the run"),
    (without_journal, "journal.jsonl is gone: nothing of the result was kept"),
    (replaced, "was replaced by another file: nothing of the result was kept"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("harm", "words_of_it"), GONE)
def test_a_run_whose_directory_goes_ends_and_says_so(
    harm: Callable[[Path], None], words_of_it: str, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    with started(run_of(1, *words(directory, 5)), directory) as job:
        job.wait_for('"Closed"')
        harm(directory)
        assert job.end(NOTICED_SECONDS) == 1, job.text()
        assert words_of_it in job.text()
        assert "VALID" not in job.text()


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("minutes", [1.0, 0.4])
def test_a_master_that_stands_still_makes_no_run_invalid(ranks: int, minutes: float, tmp_path: Path) -> None:
    """Also beyond its deadline, and with groups that have run out of work."""
    directory = tmp_path / "run"
    with started(run_of(ranks, *words(directory, minutes)), directory) as job:
        job.wait_for('"Closed"', count=2)
        stop(job.master())
        time.sleep(STALL_SECONDS)
        job.master().send_signal(signal.SIGCONT)
        assert job.end() == 0, job.text()
        assert " VALID, class smoke" in job.text()
    replay = checked(directory)
    assert [round(stall.seconds) >= STALL_SECONDS for stall in replay.leg.stalls] == [True]
    assert replay.leg.losses == []
    (found,) = [f for f in judge(replay, RunFiles(directory)).findings if f.rule == "span"]
    assert found.outcome.value == "passed", found
