"""Groups joined by Horovod: the same steps as one process, and whole runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.files import RunFiles
from tests.mpi.checked import checked
from tests.mpi.jobs import FAULT_TOLERANT, OPEN_MPI, TINY, started
from tests.mpi.presets import run_preset
from tests.mpi.steps.stepped import COMPRESSED, TOLERANCE, difference, parameters

pytestmark = [pytest.mark.horovod, pytest.mark.timeout(900)]


def test_horovod_and_one_process_make_the_same_steps(tmp_path: Path) -> None:
    """As DDP and one process do: steps/test_groups.py."""
    alone, *group = parameters("horovod", tmp_path, "batch_norm=synchronised")
    assert difference(*group) == 0
    assert difference(alone, group[0]) < TOLERANCE


@pytest.mark.parametrize("compression", ["none", "fp16"])
def test_captured_steps_are_those_of_the_eager_engine(compression: str, tmp_path: Path) -> None:
    """All-reduce and optimizer stay outside; it is captured again once Horovod has moved the tensors."""
    made = []
    for step in ("eager", "graphed"):
        (tmp_path / step).mkdir()
        settings = (f"compression={compression}", f"step={step}")
        made.append(parameters("horovod", tmp_path / step, *settings)[1:])
    assert difference(*made[1]) == 0
    assert difference(made[0][0], made[1][0]) < TOLERANCE


def test_compressed_gradients_are_nearly_the_same(tmp_path: Path) -> None:
    alone, *group = parameters("horovod", tmp_path, "batch_norm=synchronised", "compression=fp16")
    assert difference(*group) == 0
    assert TOLERANCE < difference(alone, group[0]) < COMPRESSED


def test_a_run_is_valid_and_credited_with_what_its_ranks_executed(tmp_path: Path) -> None:
    """A run of text; the next test has one of images."""
    run_preset("text", OPEN_MPI, "1+2", tmp_path / "run", "horovod")


def test_a_killed_rank_costs_its_group_and_no_more(tmp_path: Path) -> None:
    """Though the group's other rank waits for it inside MPI."""
    directory = tmp_path / "run"
    words = ["run", "--preset", TINY, "--directory", directory, "--minutes", 0.25]
    words += ["--devices-per-trial", 2, "--backend", "horovod"]
    with started(OPEN_MPI.run(5, *words, options=FAULT_TOLERANT), directory) as job:
        job.wait_for('"Closed"')
        job.rank(2).kill()
        job.wait_for('"GroupLost"', 10.0)
        job.end()
        assert " VALID, class smoke" in job.text()
    replay = checked(directory)
    assert [loss.group for loss in replay.leg.losses] == [0]
    assert RunFiles(directory).kept_weights()
