"""The MPIs that the tests of this folder run under."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mpi.jobs import MPICH, OPEN_MPI, Mpi


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the run of the test is written."""
    return tmp_path / "run"


@pytest.fixture(params=[OPEN_MPI, MPICH], ids=["openmpi", "mpich"], scope="session")
def mpi(request: pytest.FixtureRequest) -> Mpi:
    found: Mpi = request.param
    if not (found.folder / "mpiexec").exists():
        pytest.fail(f"there is no {found.folder / 'mpiexec'}; run `make test-mpi`, which installs it")
    return found
