"""Whole runs on several ranks: both tasks, by every MPI and layout, checked by independent sums."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mpi.jobs import MPICH, OPEN_MPI, Mpi, started, tiny, told
from tests.mpi.presets import run_preset

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]


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
