"""A run directory that fails: full, then with room again, and a file system that stalls.

The disks are real: small file systems of their own, which only root may mount.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aiperf.wire.trial import State
from tests.mpi.checked import finished
from tests.mpi.jobs import OPEN_MPI, TINY, started

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a disk to be filled and frozen"),
]


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


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    with mounted(place, "-t", "tmpfs", "-o", f"size={size}", "none") as disk:
        yield disk


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


def words(directory: Path, minutes: float) -> list[object]:
    run = ["run", "--preset", TINY, "--directory", directory, "--minutes", minutes]
    return [*run, "--devices-per-trial", 1]


def test_without_room_for_weights_trials_fail_with_a_reason_until_there_is_some(tmp_path: Path) -> None:
    """If none had completed before, the run would end."""
    directory = tmp_path / "run"
    run = OPEN_MPI.run(3, *words(directory, 0.4))
    with small_disk(directory / "weights", "8m") as disk, started(run, directory) as job:
        job.wait_for('"COMPLETE"')
        fill(disk / "filler")
        job.wait_for('"FAILED"', count=2)
        (disk / "filler").unlink()
        replay = finished(job)
    states = [attempt.state for attempt in replay.arrivals]
    assert State.COMPLETE in states[len(states) - states[::-1].index(State.FAILED) :]
    told = "cannot be written: No space left on device; free some space on this file system"
    assert replay.arrivals[states.index(State.FAILED)].reason.endswith(f".safetensors {told}")


def test_without_room_for_the_journal_the_run_ends_in_one_line_and_resumes(tmp_path: Path) -> None:
    directory = tmp_path / "disk" / "run"
    with small_disk(tmp_path / "disk", "1m") as disk:
        with started(OPEN_MPI.run(3, *words(directory, 0.4)), tmp_path / "first") as job:
            first = Path(job.output)
            job.directory = directory
            job.wait_for('"Closed"')
            filler = disk / "filler"
            fill(filler)
            assert job.end(60.0) == 1
            told = [line for line in first.read_text().splitlines() if line.startswith("aiperf-hpc: ")]
        full = "No space left on device; free some space on this file system"
        resume = f"aiperf-hpc resume {directory}"
        assert told == [f"aiperf-hpc: {directory}/journal.jsonl cannot be written: {full}, then: {resume}"]
        filler.unlink()
        root("mount", "-o", "remount,size=64m", disk)
        with started(
            OPEN_MPI.run(3, "resume", directory, "--devices-per-trial", 1), tmp_path / "second"
        ) as job:
            job.directory = directory
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
        patience = ("--silence-seconds", 10)
        with started(OPEN_MPI.run(3, *words(directory, 1.0), *patience), tmp_path / "first") as job:
            job.directory = directory
            job.wait_for('"Closed"', count=2)
            root("fsfreeze", "--freeze", disk)
            time.sleep(STALL_SECONDS)
            root("fsfreeze", "--unfreeze", disk)
            replay = finished(job)
        assert replay.leg.losses == []
        # The first line that waits is stamped before it does, a heartbeat after the freeze at the latest.
        assert [stall.seconds > STALL_SECONDS - 6 for stall in replay.leg.stalls] == [True]
        assert replay.leg.ended is not None
        assert replay.leg.ended.reason == "deadline"
