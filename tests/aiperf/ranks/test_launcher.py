"""What launchers say of themselves."""

from __future__ import annotations

import pytest

from aiperf.errors import WorldError
from aiperf.ranks.launcher import LaunchedRank, launched_rank

OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "9"}
TORCHRUN = {"RANK": "2", "WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "x"}
SECRET = {"AIPERF_SECRET_FILE": "/home/me/secret"}
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
        ({"RANK": "1", "WORLD_SIZE": "3"} | SECRET, LaunchedRank(1, 3, "a command per rank", False)),
        (TORCHRUN | SECRET, LaunchedRank(2, 3, "torchrun", False)),
        (OPEN_MPI | SECRET, LaunchedRank(3, 9, "mpiexec of Open MPI", False)),
        (SECRET, None),
        ({"PMI_RANK": "", "PMI_SIZE": ""}, None),
        ({"PMI_RANK": "1", "PMI_SIZE": " "} | DAEMONS, LaunchedRank(1, 2, "srun", False)),
        (TORCHRUN | {"TORCHELASTIC_RUN_ID": ""}, None),
    ],
)
def test_launched(environment: dict[str, str], expected: LaunchedRank | None) -> None:
    assert launched_rank(environment) == expected


@pytest.mark.parametrize(
    ("rank", "size", "told"),
    [
        ("x", "2", "PMI_RANK is 'x'; it must be a whole number from 0 to 16,777,216"),
        ("0", "Unknown", "PMI_SIZE is 'Unknown'; it must be a whole number from 1 to 16,777,216"),
        ("-1", "2", "PMI_RANK is '-1'; it must be"),
        ("0", "0", "PMI_SIZE is '0'; it must be"),
        ("1.0", "2", "PMI_RANK is '1.0'; it must be"),
        ("\u00b2", "3", "PMI_RANK is '\u00b2'; it must be"),
        ("\udcff", "3", "PMI_RANK is '\ufffd'; it must be"),
        ("0", "9" * 5000, f"PMI_SIZE is '{'9' * 60}…'; it must be"),
        ("0", "99999999999", "PMI_SIZE is '99999999999'; it must be"),
        ("2", "2", "PMI_RANK is 2, but PMI_SIZE is 2"),
        ("7", "1", "PMI_RANK is 7, but PMI_SIZE is 1"),
    ],
)
def test_what_is_no_rank_is_one_line_with_the_variable(rank: str, size: str, told: str) -> None:
    with pytest.raises(WorldError) as refused:
        launched_rank({"PMI_RANK": rank, "PMI_SIZE": size})
    assert str(refused.value).startswith(told)
    assert str(refused.value).endswith("; start the ranks with mpiexec, or unset PMI_RANK and PMI_SIZE")
