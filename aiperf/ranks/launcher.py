"""Detection of the launcher (mpiexec, srun, torchrun, or a command per rank) from the environment of the
processes that it starts."""

from __future__ import annotations

from collections.abc import Mapping

from aiperf.errors import WorldError
from aiperf.host import variables
from launch import SCHEDULERS
from nas.frozen import frozen

# Variables with the rank and the number of ranks, and the launcher that sets them. The first pair that is set
# counts: inside a Slurm step, the daemons of mpiexec are Slurm's tasks and pass on Slurm's variables, which
# then describe the daemons and not the ranks.
VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpiexec of Open MPI"),
    ("PMI_RANK", "PMI_SIZE", "mpiexec"),  # MPICH, Intel MPI, Cray MPICH; srun --mpi=pmi2
    *((*own.rank_variables, own.name) for each in SCHEDULERS.values() if (own := each.launcher)),
)
TORCHRUN = "torchrun"
RUN_ID = "TORCHELASTIC_RUN_ID"  # which only torchrun sets; RANK and WORLD_SIZE may be anybody's
SECRET = "AIPERF_SECRET_FILE"  # path of the secret of a run, which only this program reads
BY_HAND = "a command per rank"
"""What starts ranks without a launcher, such as a loop of ssh."""
FAULT_TOLERANT = "OMPI_MCA_mpi_ft_enable"  # set by `mpiexec --with-ft ulfm` of Open MPI 5
MOST_RANKS = 1 << 24
"""More ranks than any machine has."""


@frozen
class LaunchedRank:
    """One of several processes that a launcher started together."""

    rank: int
    size: int
    launcher: str
    fault_tolerant: bool
    """Whether the other ranks continue if one of them dies (ULFM)."""


def launched_rank(environment: Mapping[str, str]) -> LaunchedRank | None:
    """The rank of this process and its launcher; None for a process without other ranks, also if a launcher
    started it. A pair of variables of which one is empty counts as not set.

    Raises WorldError for variables that are not a rank and a number of ranks.
    """
    by_hand = BY_HAND if variables.word(environment, SECRET) else ""
    launcher = TORCHRUN if variables.word(environment, RUN_ID) else by_hand
    own = (("RANK", "WORLD_SIZE", launcher),) if launcher else ()
    for rank_name, size_name, launcher in (*own, *VARIABLES):
        if not (variables.word(environment, rank_name) and variables.word(environment, size_name)):
            continue
        remedy = f"start the ranks with {launcher}, or unset {rank_name} and {size_name}"
        size = variables.whole(environment, size_name, 1, MOST_RANKS, remedy)
        rank = variables.whole(environment, rank_name, 0, MOST_RANKS, remedy)
        assert size is not None
        assert rank is not None
        if rank >= size:
            raise WorldError(f"{rank_name} is {rank}, but {size_name} is {size}; {remedy}")
        if size == 1:
            return None
        tolerant = variables.word(environment, FAULT_TOLERANT).lower() in ("1", "true", "yes")
        return LaunchedRank(rank, size, launcher, tolerant)
    return None
