"""Groups joined by Horovod: the same steps as one process, and whole runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.journal.run_files import RunFiles
from analysis.readings.run_tables import devices_and_hosts
from tests.mpi.checked import checked
from tests.mpi.jobs import FAULT_TOLERANT, OPEN_MPI, started, tiny
from tests.mpi.steps.test_groups import COMPRESSED, TOLERANCE, Ranks, difference, parameters
from tests.mpi.switch import as_root, joined_hosts
from tests.mpi.test_runs import run_preset

pytestmark = [pytest.mark.horovod, pytest.mark.timeout(900)]


WHOLE = "batch_norm=synchronised compression"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ranks]:
    settings = [
        f"{each}={compression}"
        for compression in ("none", "fp16")
        for each in (WHOLE, "step=eager compression", "step=graphed compression")
    ]
    return parameters("horovod", tmp_path_factory.mktemp("steps"), *settings)


@pytest.mark.parametrize(
    ("compression", "least", "most"), [("none", 0.0, TOLERANCE), ("fp16", TOLERANCE, COMPRESSED)]
)
def test_horovod_and_one_process_make_the_same_steps(
    made: dict[str, Ranks], compression: str, least: float, most: float
) -> None:
    """As DDP and one process do, steps/test_groups.py; compressed gradients are nearly the same."""
    alone, *group = made[f"{WHOLE}={compression}"]
    assert difference(*group) == 0
    assert least <= difference(alone, group[0]) < most


@pytest.mark.parametrize("compression", ["none", "fp16"])
def test_captured_steps_are_those_of_the_eager_engine(made: dict[str, Ranks], compression: str) -> None:
    """All-reduce and optimizer stay outside; it is captured again once Horovod has moved the tensors."""
    eager, captured = (made[f"step={step} compression={compression}"][1:] for step in ("eager", "graphed"))
    assert difference(*captured) == 0
    assert difference(eager[0], captured[0]) < TOLERANCE


def test_a_run_is_valid_and_credited_with_what_its_ranks_executed(directory: Path) -> None:
    """A run of text; the next test has one of images."""
    run_preset("text", OPEN_MPI, "1+2", directory, "horovod")


@as_root
def test_a_killed_rank_costs_its_group_over_two_hosts_and_no_more(directory: Path, tmp_path: Path) -> None:
    """Though the group's other rank, on the other host, waits for it inside MPI, and rank 1 has never sent it
    anything."""
    words = tiny(directory, 0.25, "--devices-per-trial", 2, "--spread", "--backend", "horovod")
    with (
        joined_hosts(tmp_path) as hosts,
        started(hosts.run(*words, workers=2, options=FAULT_TOLERANT), directory) as job,
    ):
        job.wait_for('"Closed"', count=2)
        job.rank(4).kill()
        job.wait_for('"GroupLost"', 10.0)
        job.end()
        assert " VALID, class smoke" in job.text()
    replay = checked(directory)
    assert [set(group) for group in replay.leg.began.groups] == [{1, 3}, {2, 4}]
    assert devices_and_hosts(replay).endswith(" on 2 hosts, each group over 2 of them")
    assert [loss.group for loss in replay.leg.losses] == [1]
    assert RunFiles(directory).kept_weights()
