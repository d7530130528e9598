"""A run directory that fails: full, then with room again, and a file system that stalls.

The disks are real: small file systems of their own, which only root may mount.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from aiperf.wire.trial import State
from tests.mpi.checked import finished
from tests.mpi.jobs import OPEN_MPI, endings, started, tiny

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a disk to be filled and frozen")
pytestmark = [pytest.mark.mpi, pytest.mark.slow, pytest.mark.timeout(900), as_root]

ALONE = ("--devices-per-trial", 1)
FULL = "cannot be written: No space left on device; free some space on this file system"
STALL_SECONDS = 36.0
"""Longer than groups may be silent, and than they have to stop."""


def root(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, timeout=60)


@contextmanager
def mounted(place: Path, *options: object) -> Iterator[Path]:
    place.mkdir(parents=True)
    root("mount", *options, place)
    try:
        yield place
    finally:
        root("umount", "--lazy", place)


def small_disk(place: Path, size: str) -> AbstractContextManager[Path]:
    return mounted(place, "-t", "tmpfs", "-o", f"size={size}", "none")


@contextmanager
def disk_that_freezes(place: Path) -> Iterator[Path]:
    image = place.with_suffix(".ext4")
    with image.open("wb") as file:
        file.truncate(64 << 20)
    root("mkfs.ext4", "-q", image)
    with mounted(place, "-o", "loop", image) as disk:
        try:
            yield disk
        finally:  # a frozen one could not even be unmounted
            subprocess.run(["fsfreeze", "--unfreeze", str(disk)], stderr=subprocess.DEVNULL, timeout=60)


def test_without_room_for_weights_trials_fail_with_a_reason_until_there_is_some(directory: Path) -> None:
    """If none had completed before, the run would end."""
    run = OPEN_MPI.run(3, *tiny(directory, 0.4, *ALONE))
    with small_disk(directory / "weights", "8m") as disk, started(run, directory) as job:
        job.wait_for('"COMPLETE"')
        fill(disk / "filler")
        job.wait_for('"FAILED"', count=2)
        (disk / "filler").unlink()
        replay = finished(job)
    states = [attempt.state for attempt in replay.arrivals]
    assert State.COMPLETE in states[len(states) - states[::-1].index(State.FAILED) :]
    assert replay.arrivals[states.index(State.FAILED)].reason.endswith(f".safetensors {FULL}")


def test_without_room_for_the_journal_the_run_ends_in_one_line_and_resumes(tmp_path: Path) -> None:
    directory = tmp_path / "disk" / "run"
    with small_disk(tmp_path / "disk", "1m") as disk:
        run = OPEN_MPI.run(3, *tiny(directory, 0.4, *ALONE))
        with started(run, directory, tmp_path / "first.out") as job:
            job.wait_for('"Closed"')
            fill(disk / "filler")
            assert job.end(60.0) == 1
            printed = job.output.read_text().splitlines()
        assert [line for line in printed if line.startswith("aiperf-hpc: ")] == [
            f"aiperf-hpc: {directory}/journal.jsonl {FULL}, then: aiperf-hpc resume {directory}"
        ]
        (disk / "filler").unlink()
        root("mount", "-o", "remount,size=64m", disk)
        again = OPEN_MPI.run(3, "resume", directory, *ALONE)
        with started(again, directory, tmp_path / "second.out") as job:
            replay = finished(job)
    assert replay.num_legs == 2


def fill(file: Path) -> None:
    """All the room that is left, and all that is freed for a moment."""
    with file.open("wb", buffering=0) as filler:
        for block in (1 << 16, 1 << 12):
            try:
                while True:
                    filler.write(bytes(block))
            except OSError:
                continue


def test_a_file_system_that_stalls_costs_its_time_and_no_more(tmp_path: Path) -> None:
    """Though a group has but ten seconds to be silent. The ranks' own logs stand still, too."""
    with disk_that_freezes(tmp_path / "disk") as disk:
        directory = disk / "run"
        run = OPEN_MPI.run(3, *tiny(directory, 1.0, *ALONE, "--silence-seconds", 10))
        with started(run, directory, tmp_path / "first.out") as job:
            job.wait_for('"Closed"', count=2)
            root("fsfreeze", "--freeze", disk)
            time.sleep(STALL_SECONDS)
            root("fsfreeze", "--unfreeze", disk)
            replay = finished(job)
        assert replay.leg.losses == []
        # The first line that waits is stamped before it does, a heartbeat after the freeze at the latest.
        assert [stall.seconds > STALL_SECONDS - 6 for stall in replay.leg.stalls] == [True]
        assert endings(replay) == ["deadline"]
