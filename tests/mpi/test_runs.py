"""Whole runs on several ranks: both tasks, by every MPI and layout, checked by independent sums."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.journal.replay import Replay
from tests.mpi.jobs import MPICH, OPEN_MPI, TINY, Mpi, started, told
from tests.mpi.presets import run_preset

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]


# What two MPIs do differently, a group of two shows.
@pytest.mark.parametrize(
    ("preset", "mpi", "layout"),
    [("digits", OPEN_MPI, "1+2"), ("text", OPEN_MPI, "1+4"), ("text", MPICH, "1+2")],
    ids=lambda value: value if isinstance(value, str) else value.name,
    indirect=["mpi"],
)
def test_a_run_is_valid_and_credited_with_what_its_ranks_executed(
    preset: str, mpi: Mpi, layout: str, tmp_path: Path
) -> None:
    run_preset(preset, mpi, layout, tmp_path / "run")


def curves(replay: Replay) -> dict[int, list[tuple[int, float]]]:
    return {number: story.attempts[-1].curve for number, story in replay.trials.items()}


@pytest.mark.slow
def test_one_seed_gives_one_result_for_a_group_size(tmp_path: Path) -> None:
    found = []
    for name in ("first", "second"):
        words = ["run", "--preset", TINY, "--directory", tmp_path / name, "--max-trials", 3]
        command = OPEN_MPI.run(3, *words, "--set", "limits.minutes=0", "--devices-per-trial", 2)
        with started(command, tmp_path / name) as job:
            assert job.end() == 0, job.text()
        replay = told(tmp_path / name)
        tested = replay.tested
        assert tested is not None
        found.append((curves(replay), tested.trial, tested.tally))
    assert found[0] == found[1]
    assert len(found[0][0]) == 3
