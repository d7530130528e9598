"""What a trial does to its own process, and what silence is: the rank lives, the trial is given again. A
worker killed before the clock runs, a run directory that goes, a master that stands still."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.rules.verdict import judge
from aiperf.wire.clocks import CLOCK_SECONDS
from aiperf.wire.trial import State
from tests.mpi.checked import finished
from tests.mpi.jobs import OPEN_MPI, Job, run_of, started, tiny

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]


def command(directory: Path, trials: int, *words: object) -> list[str]:
    """Two groups, and no limit of time: what is lost has to be done again, however slow the machine is."""
    run = tiny(directory, 0, "--devices-per-trial", 1, "--max-trials", trials, *words)
    return OPEN_MPI.run(3, *run)


def repeated(job: Job) -> Replay:
    """The run of a job that lost an attempt."""
    replay = finished(job)
    assert State.LOST not in {story.state for story in replay.trials.values()}, "what was lost is done again"
    return replay


def test_a_segmentation_fault_costs_one_attempt(directory: Path) -> None:
    """The worker is no rank, so one MPI shows it: that whose ranks do not spin while they wait."""
    with started(command(directory, 4), directory) as job:
        job.wait_for('"Closed"')
        job.worker(1).send_signal(signal.SIGSEGV)
        job.wait_for('"GroupLost"', 10.0)
        replay = repeated(job)
    (loss,) = replay.leg.losses
    killed = r"rank 1 on \S+: the worker \(process \d+\) was killed by signal 11; .+"
    assert re.fullmatch(killed, loss.reason)


@pytest.mark.slow
def test_a_silent_group_is_lost_and_what_it_says_later_is_refused(directory: Path) -> None:
    """Its rank and its worker stop together, as where a host hangs, and go on when others have its trials.
    It was stopped before that already, when its worker was ready, which tells nothing about its clock."""
    words = ["--silence-seconds", 3, "--set", "training.epochs=[12]"]
    with started(command(directory, 20, *words), directory) as job:
        job.wait_for('"LegBegan"')
        late = job.rank(1)
        job.wait_for('"FabricMeasured"')  # for which all ranks wait
        late.suspend()
        job.wait_for('"RankReady"')  # of the other group
        time.sleep(2 * CLOCK_SECONDS)
        late.resume()
        job.wait_for('"Stepped"', count=4)
        hung = [job.worker(1), job.rank(1)]
        for process in hung:
            process.suspend()
        job.wait_for('"GroupLost"', 30.0)
        for process in hung:
            process.resume()
        job.wait_for('"clock_offset_seconds"', 60.0, count=3)
        replay = repeated(job)
    (loss,) = replay.leg.losses
    assert re.fullmatch(r"was silent for \d+ s", loss.reason)
    assert all(event.clock.known and event.clock.least_seconds == 0.0 for event in replay.ranks)
    # What the first incarnation did meanwhile stands in its own log alone; `checked` has summed without it.
    assert RunFiles(directory).witness(replay.ranks[0].ready.host, 1).exists()


# To the run itself

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
        job.master().suspend()
        time.sleep(STALL_SECONDS)
        job.master().resume()
        replay = finished(job)
    assert [round(stall.seconds) >= STALL_SECONDS for stall in replay.leg.stalls] == [True]
    assert replay.leg.losses == []
    (found,) = [f for f in judge(replay, RunFiles(directory)).findings if f.rule == "span"]
    assert found.outcome.value == "passed", found
