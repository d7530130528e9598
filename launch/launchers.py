"""What starts the ranks: each launcher as a pure function from a site to the words of a command.

Words are shell text: `$hosts` names a file with the host of every rank, a line each; `$nodes` is the
number of nodes, `$devices` that of the devices of one node, `$cores` that of the cores of a rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from launch.site import Mpi

COUNT = '"$(wc -l <"$hosts")"'

UNBOUND: Mapping[str, str] = {
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
"""Open MPI, up to 4 and from 5 on, binds a rank to one core or to a part of the node; the ranks of this
program share the cores out themselves. Other MPIs do not read these variables."""


def srun(mpi: Mpi) -> list[str]:
    """Only the arbitrary distribution gives the first node one rank more and keeps ranks consecutive: with
    block and cyclic the master shares a device or a node is left with one rank less."""
    return [
        'env SLURM_HOSTFILE="$hosts"',
        "srun",
        f"--mpi={mpi.plugin}",
        '--nodes="$nodes"',
        f"--ntasks={COUNT}",
        "--distribution=arbitrary",
        '--cpus-per-task="$cores"',
    ]


def mpiexec(mpi: Mpi) -> list[str]:
    return ["mpiexec", "-n", COUNT, "--hostfile", '"$hosts"']


def mpirun(mpi: Mpi) -> list[str]:
    return ["mpirun", "-n", COUNT, "--hostfile", '"$hosts"']


def torchrun(mpi: Mpi) -> list[str]:
    """Of one node, where no MPI is needed. A warning would kill it before any rank has heard of it."""
    return [
        'bash -c \'trap "" USR1; exec "$@"\' ranks',
        "torchrun",
        "--standalone",
        "--nproc-per-node=$((devices + 1))",
        "--no-python",
    ]


_LAUNCHERS: Mapping[str, Callable[[Mpi], list[str]]] = {
    "srun": srun,
    "mpiexec": mpiexec,
    "mpirun": mpirun,
    "torchrun": torchrun,
}


def ranks(mpi: Mpi) -> list[str]:
    """The words before the program: one rank for each line of the host file."""
    return [*_LAUNCHERS[mpi.launcher](mpi), *mpi.options]


def warn(mpi: Mpi) -> str:
    """What hands a warning on to the ranks, which the process $run started."""
    return 'pkill -USR1 -P "$run"' if mpi.launcher == "torchrun" else 'kill -USR1 "$run"'


def once_a_node(mpi: Mpi) -> list[str]:
    """The words before a command that runs once on every node."""
    if mpi.launcher == "srun":
        return ["srun", '--nodes="$nodes"', '--ntasks="$nodes"', "--ntasks-per-node=1"]
    if mpi.launcher == "torchrun":
        return []
    return [mpi.launcher, "-n", '"$nodes"', "--hostfile", '"$hosts.once"']
