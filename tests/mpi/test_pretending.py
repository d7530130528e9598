"""The real path under load: many ranks that only pretend to train, five of which are killed."""

from __future__ import annotations

import random
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from aiperf.journal.events import Origin
from aiperf.journal.run_files import RunFiles
from tests.mpi.busy_shares import busy_shares
from tests.mpi.checked import checked
from tests.mpi.jobs import FAULT_TOLERANT, OPEN_MPI, endings, started, tiny, told
from tests.mpi.test_death import complete, kept

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]

KILLED = 5
SPAN_SECONDS = 24.0
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
    words = tiny(directory, SPAN_SECONDS / 60, "--pretend", "laptop", "--devices-per-trial", 1, *TRIALS)
    command = OPEN_MPI.run(groups + 1, *words, options=FAULT_TOLERANT)
    with started(command, directory, OPENBLAS_NUM_THREADS="1") as job:
        released = job.wait_for('"Released"')
        doomed = [job.rank(victim) for victim in victims]
        time.sleep(max(0.0, released + SPAN_SECONDS / 2 - time.monotonic()))
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
