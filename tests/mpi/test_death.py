"""Ranks and masters killed at random moments: what a run notices, what it loses, what resume finds. And the
real path under load.

`make test-mpi` kills one of each, `make test-mpi-slow` nine more. KILL_SEED repeats what was printed.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from aiperf.journal.attempts import AFTER_LAST_LINE_SECONDS
from aiperf.journal.events import Origin
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.wire.trial import State
from tests.mpi.busy_shares import busy_shares
from tests.mpi.checked import checked, finished
from tests.mpi.jobs import (
    FAULT_TOLERANT,
    OPEN_MPI,
    PROGRAM,
    TINY,
    TINY_TEXT,
    Mpi,
    endings,
    started,
    tiny,
    told,
)

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]

SPAN_SECONDS = 20.0
LEFT_SECONDS = 8.0
"""What is left of the span when a rank is killed: a busy machine validates a network in them."""
FIRST_SEED = int(os.environ.get("KILL_SEED", time.time_ns() % 1_000_000))
SEEDS = [
    pytest.param(number, marks=[pytest.mark.slow] * (number > 0), id=f"kill{number}") for number in range(10)
]
LAYOUTS = ((3, 1), (4, 1), (5, 2))
"""Ranks, and devices a trial."""
NOTICED_SECONDS = 10.0
ENDED_BY_LAUNCHER = {
    "openmpi": "exited on signal 9 (Killed)",
    "mpich": "APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)",
}
"""The one clear line, which the launchers print themselves."""


def complete(replay: Replay) -> dict[int, int]:
    """By the number of every completed trial, its last attempt."""
    stories = replay.trials.items()
    return {n: story.attempts[-1].number for n, story in stories if story.state is State.COMPLETE}


def kept(before: dict[int, int], replay: Replay) -> None:
    """Nothing that was completed is lost or done again."""
    after = complete(replay)
    assert {number: after.get(number) for number in before} == before


@pytest.mark.parametrize("number", SEEDS)
def test_a_killed_rank_costs_its_group_and_no_more(
    number: int, directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(seed := FIRST_SEED + number)
    ranks, devices = chance.choice(LAYOUTS)
    victim, after = chance.randrange(1, ranks), chance.uniform(0.5, SPAN_SECONDS - LEFT_SECONDS)
    copied, preset = tmp_path / "before", TINY if number % 2 else TINY_TEXT
    words = tiny(directory, SPAN_SECONDS / 60, "--devices-per-trial", devices, preset=preset)
    with started(OPEN_MPI.run(ranks, *words, options=FAULT_TOLERANT), directory) as job:
        doomed = job.rank_after(victim, after)
        copied.mkdir()
        shutil.copy(RunFiles(directory).journal, copied)
        killed = time.monotonic()
        doomed.kill()
        noticed = job.wait_for('"GroupLost"', NOTICED_SECONDS) - killed
        code = job.end()
        assert " VALID, class smoke" in job.text()
    replay, before = checked(directory), complete(told(copied))
    with capsys.disabled():
        print(
            f"\nKILL_SEED={seed}, {preset.stem}: rank {victim} of {ranks} killed after {after:.1f} s, "
            f"noticed in {noticed:.2f} s; {len(before)} trials complete before, {len(complete(replay))} "
            f"after; exit {code}"
        )
    kept(before, replay)
    (loss,) = replay.leg.losses
    assert re.fullmatch(rf"rank {victim} on \S+ is dead", loss.reason)
    assert endings(replay) == ["deadline"]
    others = {attempt.group for attempt in replay.attempts if attempt.state is State.COMPLETE}
    assert others - {loss.group}, "the other groups worked on"


@pytest.mark.parametrize("number", SEEDS)
def test_after_a_killed_master_resume_loses_only_what_was_in_flight(
    number: int, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(seed := FIRST_SEED + number)
    ranks, devices = chance.choice(LAYOUTS)
    options = chance.choice([(), FAULT_TOLERANT])
    after = chance.uniform(0.5, SPAN_SECONDS - LEFT_SECONDS)
    # A leg that was killed ends some seconds after its last line, so that much less is left.
    words = tiny(directory, (SPAN_SECONDS + AFTER_LAST_LINE_SECONDS) / 60, "--devices-per-trial", devices)
    with started(OPEN_MPI.run(ranks, *words, options=options), directory) as job:
        doomed = job.rank_after(0, after)
        killed = time.monotonic()
        doomed.kill()
        assert job.end(30.0) != 0
        ended = time.monotonic() - killed
        left = job.gone()
    before, journal = complete(told(directory)), whole_lines(directory)
    again, width = chance.choice(LAYOUTS)
    with started(OPEN_MPI.run(again, "resume", directory, "--devices-per-trial", width), directory) as job:
        replay = finished(job)
    with capsys.disabled():
        print(
            f"\nKILL_SEED={seed}: master of {ranks} ranks ({' '.join(options) or 'no ft'}) killed after "
            f"{after:.1f} s, the launcher ended in {ended:.1f} s, all processes {left:.1f} s later; resumed "
            f"by {again} ranks: {len(before)} trials complete before, {len(complete(replay))} in the end"
        )
    assert whole_lines(directory)[: len(journal)] == journal
    kept(before, replay)
    assert replay.num_legs == 2
    lost = [each for each in replay.attempts if each.leg.index == 0 and each.state is State.LOST]
    assert len(lost) <= 2 * ((ranks - 1) // devices), "a trial that runs and one ahead for each group"


def whole_lines(directory: Path) -> list[str]:
    return [line.chain for line in read_journal(directory / "journal.jsonl")]


@pytest.mark.slow
def test_without_fault_tolerance_a_killed_rank_ends_the_job_at_once(mpi: Mpi, directory: Path) -> None:
    words = tiny(directory, SPAN_SECONDS / 60, "--devices-per-trial", 1)
    with started(mpi.run(3, *words), directory) as job:
        job.wait_for('"Closed"')
        killed = time.monotonic()
        job.rank(2).kill()
        assert job.end(30.0) != 0
        ended = time.monotonic() - killed
        job.gone()
        text = job.output.read_text()
    assert ended < 15
    assert ENDED_BY_LAUNCHER[mpi.name] in " ".join(text.split()), text
    before = complete(told(directory))
    with started(mpi.run(2, "resume", directory), directory) as job:
        kept(before, finished(job))


DIES = """
import os
from aiperf.ranks import connect
if os.environ["OMPI_COMM_WORLD_RANK"] == "2":
    connect.mpi_module().Init_thread  # loaded, as it is when its MPI_Init is called
    class Dying:
        def __getattr__(self, name):
            return False.__bool__ if name == "Is_initialized" else lambda *level: os.kill(os.getpid(), 9)
    connect.mpi_module = Dying
"""


@pytest.mark.slow
def test_a_rank_that_dies_inside_mpi_init_ends_the_job_with_its_name(directory: Path) -> None:
    """A fault-tolerant mpiexec leaves the others waiting for it, without letting their threads run."""
    program = [OPEN_MPI.python, "-c", f"{DIES}\n{PROGRAM}", *map(str, tiny(directory, 0.1))]
    with started(OPEN_MPI.command(3, *program, options=FAULT_TOLERANT), directory) as job:
        assert job.end(90.0) != 0
        job.gone()
        text = job.text()
    assert re.search(
        r"^aiperf-hpc: rank 2 on \S+ died while MPI started, and the other ranks wait", text, re.M
    )
    assert text.count("aiperf-hpc: ") == 1


# Many ranks, which only pretend to train

KILLED = 5
PRETENDED_SECONDS = 24.0
TRIALS = ("--set", "training.epochs=[20]", "--set", "training.validate_every_examples=2560")
"""Trials of about seven seconds by the assumptions of a laptop, with two validations each."""
BUSY, LEAST_BUSY = 0.8, 0.6
"""Least busy share, as a mean and of the idlest group. 129 processes on two cores, which other programs use,
too, wake up late: with 110 processes waiting for a core the mean was 0.966. An idle machine has 0.999:
docs/scaling.md."""


@pytest.mark.parametrize("groups", [24, pytest.param(128, marks=pytest.mark.slow)])
def test_of_many_ranks_five_are_killed_and_nothing_else_is_lost(
    groups: int, directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied, began = tmp_path / "before", time.monotonic()
    victims = sorted(random.Random(5).sample(range(1, groups + 1), KILLED))
    words = tiny(directory, PRETENDED_SECONDS / 60, "--pretend", "laptop", "--devices-per-trial", 1, *TRIALS)
    command = OPEN_MPI.run(groups + 1, *words, options=FAULT_TOLERANT)
    with started(command, directory, OPENBLAS_NUM_THREADS="1") as job:
        released = job.wait_for('"Released"')
        doomed = [job.rank(victim) for victim in victims]
        time.sleep(max(0.0, released + PRETENDED_SECONDS / 2 - time.monotonic()))
        copied.mkdir()
        shutil.copy(RunFiles(directory).journal, copied)  # to be read when there is time
        for process in doomed:
            process.kill()
        job.end()
        ended = time.monotonic()
    replay, before = checked(directory), complete(told(copied))
    assert replay.opened.origin is Origin.PRETENDED
    losses = {loss.group + 1: loss.reason for loss in replay.leg.losses}
    assert sorted(losses) == victims
    assert all(re.fullmatch(rf"rank {rank} on \S+ is dead", reason) for rank, reason in losses.items())
    assert endings(replay) == ["deadline"]
    assert before
    kept(before, replay)
    shares = list(busy_shares(replay).values())
    with capsys.disabled():
        print(
            f"\n{groups} groups: clock after {released - began:.0f} s, end after {ended - began:.0f} s; "
            f"{len(complete(replay))} trials complete, {len(before)} before the kill; "
            f"busy {np.mean(shares):.2%}, the idlest {min(shares):.2%}"
        )
    assert np.mean(shares) >= BUSY
    assert min(shares) >= LEAST_BUSY
