"""Detection of the launcher (mpiexec, srun, torchrun) from the environment of the processes that it
starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from launch import SCHEDULERS

# Variables with the rank and the number of ranks, and the launcher that sets them. The first pair that is set
# counts: inside a Slurm step, the daemons of mpiexec are Slurm's tasks and pass on Slurm's variables, which
# then describe the daemons and not the ranks.
VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpiexec of Open MPI"),
    ("PMI_RANK", "PMI_SIZE", "mpiexec"),  # MPICH, Intel MPI, Cray MPICH; srun --mpi=pmi2
    *((*own.rank_variables, own.name) for each in SCHEDULERS.values() if (own := each.launcher)),
)
TORCHRUN = "torchrun"
FAULT_TOLERANT = "OMPI_MCA_mpi_ft_enable"  # set by `mpiexec --with-ft ulfm` of Open MPI 5


@dataclass(frozen=True)
class LaunchedRank:
    """One of several processes that a launcher started together."""

    rank: int
    size: int
    launcher: str
    fault_tolerant: bool
    """Whether the other ranks continue if one of them dies (ULFM)."""


def launched_rank(environment: Mapping[str, str]) -> LaunchedRank | None:
    """The rank of this process and its launcher; None for a process without other ranks, also if a launcher
    started it."""
    torchrun = (("RANK", "WORLD_SIZE", TORCHRUN),) if "TORCHELASTIC_RUN_ID" in environment else ()
    for rank, size, launcher in (*torchrun, *VARIABLES):
        if rank in environment and size in environment:
            if int(environment[size]) == 1:
                return None
            tolerant = environment.get(FAULT_TOLERANT, "").lower() in ("1", "true", "yes")
            return LaunchedRank(int(environment[rank]), int(environment[size]), launcher, tolerant)
    return None
