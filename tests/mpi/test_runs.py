"""Whole runs on several ranks: both tasks, by every MPI and layout, from the command to the checked
journal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aiperf.journal.run_files import RunFiles
from aiperf.rules.verdict import judge
from aiperf.score.deviation import Agreement, agreement, at_beginning
from tests.mpi.checked import finished, seen_by_witnesses
from tests.mpi.jobs import MPICH, OPEN_MPI, Mpi, started, tiny, told

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]


LAYOUTS = {"1+2": (3, 1), "1+4": (5, 2)}
"""Ranks, and devices a trial."""
LIBRARIES = {
    "openmpi": re.compile(r"Open MPI v\d+\.\d+\.\d+\w*"),
    "mpich": re.compile(r"MPICH Version: \d+\.\d+\S*"),
}
"""What each MPI calls itself and its version."""

QUICK = {
    "digits": ("training.epochs=[4, 3]", "training.validate_every_examples=500"),
    "text": ("training.epochs=[1]", "data.validation_examples=16", "training.validate_every_examples=64"),
}
"""A preset of each task, so that a trial of some seconds has several validations."""
TESTED = {"digits": 1197, "text": 525}
"""Images; windows of 256 bytes."""


def run_preset(preset: str, mpi: Mpi, layout: str, directory: Path, backend: str = "ddp") -> None:
    """Two trials of each group, however long they take; what it prints and what it writes is checked."""
    num_ranks, devices = LAYOUTS[layout]
    words = ["run", "--preset", preset, "--directory", directory, "--set", "limits.minutes=0"]
    words += ["--max-trials", 2 * (num_ranks - 1) // devices, "--format", "fp32", "--device", "cpu"]
    quick = [word for value in QUICK[preset] for word in ("--set", value)]
    groups = ["--devices-per-trial", devices, "--backend", backend]
    # After the span one device computes wrongly, which costs the run nothing but that it is named.
    with started(mpi.run(num_ranks, *words, *quick, *groups), directory, AIPERF_TEST_FLIP="2:1") as job:
        replay = finished(job)
        assert "is not shared" not in job.text()
    workers = range(1, num_ranks)
    assert sorted(replay.leg.controls) == list(workers)
    assert at_beginning(replay.leg) == Agreement((), (), agreed=num_ranks - 1)
    assert [each.rank for each in agreement(replay).deviations] == [2]
    assert replay.leg.began.backend == backend
    assert replay.leg.began.groups == tuple(
        tuple(range(first, first + devices)) for first in range(1, num_ranks, devices)
    )
    libraries = [event.ready.settings["MPI"] for event in replay.leg.ranks]
    assert all(LIBRARIES[mpi.name].fullmatch(library) for library in libraries), libraries
    assert replay.blocks.column("examples").sum() > 0
    assert replay.tested is not None
    assert replay.tested.tally.of == TESTED[preset]
    logs = sorted(directory.glob("logs/*.steps.jsonl"))
    assert len(logs) == len(workers)
    assert "with the hash of each validation; none missing" in seen_by_witnesses(directory)
    logs[-1].write_text(logs[-1].read_text().replace('"examples": ', '"examples":  ', 1))
    assert not judge(replay, RunFiles(directory)).valid
    assert "their hash is not the recorded one" in seen_by_witnesses(directory)


# Each MPI, each task, a group of two and one of four; text under Open MPI is in test_death.py.
@pytest.mark.parametrize(
    ("preset", "mpi", "layout"),
    [("digits", OPEN_MPI, "1+4"), ("text", MPICH, "1+2")],
    ids=lambda value: value if isinstance(value, str) else value.name,
    indirect=["mpi"],
)
def test_a_run_is_valid_and_credited_with_what_its_ranks_executed(
    preset: str, mpi: Mpi, layout: str, directory: Path
) -> None:
    run_preset(preset, mpi, layout, directory)


def test_what_cannot_be_run_is_refused_in_one_line_and_all_ranks_leave(directory: Path) -> None:
    words = tiny(directory, 0.1, "--device", "cpu", "--devices-per-trial", 2)
    with started(OPEN_MPI.run(4, *words), directory) as job:
        assert job.end() == 1
        assert job.output.read_text().strip().splitlines()[0] == (
            "aiperf-hpc: --devices-per-trial 2 does not divide 1 host of 3 workers evenly; use one of 1, 3"
        )
    assert not directory.exists()


@pytest.mark.slow
def test_one_seed_gives_one_result_for_a_group_size(tmp_path: Path) -> None:
    found = []
    for name in ("first", "second"):
        words = tiny(tmp_path / name, 0, "--max-trials", 3, "--devices-per-trial", 2)
        with started(OPEN_MPI.run(3, *words), tmp_path / name) as job:
            assert job.end() == 0, job.text()
        replay = told(tmp_path / name)
        curves = {number: story.attempts[-1].curve for number, story in replay.trials.items()}
        found.append((curves, replay.tested.trial, replay.tested.tally))
    assert found[0] == found[1]
    assert len(found[0][0]) == 3
