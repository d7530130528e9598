"""Whole runs on several ranks: the digits, by every MPI and layout, checked by independent sums."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aiperf.files import RunFiles
from aiperf.findings import Kind
from aiperf.lineage import recount
from aiperf.replay import Replay
from aiperf.rules import judge
from aiperf.score import score
from tests.mpi.executed import tensor_operations
from tests.mpi.jobs import OPEN_MPI, TINY, Mpi, started, told

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

LAYOUTS = {"1+1": (2, 1), "1+2": (3, 1), "1+4": (5, 2)}
"""Ranks, and devices a trial."""

Finish = Callable[[Mpi, str], Path]


@pytest.fixture(scope="module")
def finish(tmp_path_factory: pytest.TempPathFactory) -> Finish:
    """The directory of a finished run of the digits; each is made once."""
    made: dict[tuple[str, str], Path] = {}

    def finish(mpi: Mpi, layout: str) -> Path:
        if (mpi.name, layout) not in made:
            num_ranks, devices = LAYOUTS[layout]
            directory = tmp_path_factory.mktemp("run") / "run"
            words = ["run", "--directory", directory, "--minutes", 0.1, "--format", "fp32", "--device", "cpu"]
            quick = ["--set", "training.epochs=[10, 5]", "--set", "training.validate_every_images=500"]
            command = mpi.run(num_ranks, *words, *quick, "--devices-per-trial", devices)
            with started(command, directory) as job:
                assert job.end() == 0, job.text()
                assert "VALID, class smoke" in job.text()
                assert "is not shared" not in job.text()
            made[mpi.name, layout] = directory
        return made[mpi.name, layout]

    return finish


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_is_valid(mpi: Mpi, layout: str, finish: Finish) -> None:
    directory = finish(mpi, layout)
    replay, files = told(directory), RunFiles(directory)
    num_ranks, devices = LAYOUTS[layout]
    workers = range(1, num_ranks)
    assert sorted(replay.leg.controls) == list(workers)
    assert replay.leg.began.groups == tuple(
        tuple(range(first, first + devices)) for first in range(1, num_ranks, devices)
    )
    assert replay.tested is not None
    assert replay.tested.of == 1197
    verdict = judge(replay, files)
    assert verdict.valid, verdict.failed(Kind.INTEGRITY)
    assert len(list(files.directory.glob("logs/*.steps.jsonl"))) == len(workers)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_credit_is_what_the_ranks_executed(mpi: Mpi, layout: str, finish: Finish) -> None:
    directory = finish(mpi, layout)
    replay = told(directory)
    credited = score(replay, recount(replay).counts).goodput.tensor_operations
    assert credited == tensor_operations(replay, directory)
    assert credited > 0


def curves(replay: Replay) -> dict[int, list[tuple[int, float]]]:
    return {number: story.attempts[-1].curve for number, story in replay.trials.items()}


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
        found.append((curves(replay), tested.trial, tested.correct))
    assert found[0] == found[1]
    assert len(found[0][0]) == 3
