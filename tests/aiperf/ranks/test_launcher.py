"""What launchers say of themselves."""

from __future__ import annotations

import pytest

from aiperf.ranks.launcher import LaunchedRank, launched_rank

OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "9"}
TORCHRUN = {"RANK": "2", "WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "x"}
DAEMONS = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        (OPEN_MPI, LaunchedRank(3, 9, "mpiexec of Open MPI", fault_tolerant=False)),
        (OPEN_MPI | {"OMPI_MCA_mpi_ft_enable": "1"}, LaunchedRank(3, 9, "mpiexec of Open MPI", True)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, LaunchedRank(0, 2, "mpiexec", False)),
        ({"SLURM_PROCID": "4", "SLURM_STEP_NUM_TASKS": "5"}, LaunchedRank(4, 5, "srun", False)),
        # mpiexec inside a Slurm job starts its daemons by srun, whose variables the ranks get as well
        (OPEN_MPI | DAEMONS, LaunchedRank(3, 9, "mpiexec of Open MPI", False)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),  # a batch script is not a rank
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, None),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, None),
        ({"RANK": "1", "WORLD_SIZE": "3"}, None),  # anybody's
        (DAEMONS | TORCHRUN, LaunchedRank(2, 3, "torchrun", False)),
    ],
)
def test_launched(environment: dict[str, str], expected: LaunchedRank | None) -> None:
    assert launched_rank(environment) == expected
