"""The launchers that start the ranks, each as the words of a command.

Words are shell text: `$hosts` names a file with the host of every rank, one per line; `$nodes` is the
number of nodes, `$devices` that of the devices of one node, `$cores` that of the cores of a rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from launch.site import Mpi

COUNT = '"$(wc -l <"$hosts")"'


@dataclass(frozen=True)
class Launcher:
    name: str
    ranks: Callable[[Mpi], list[str]]
    """The words before the program: one rank for each line of the host file."""
    once_a_node: tuple[str, ...]
    """The words before a command that runs once on every node."""
    rank_variables: tuple[str, str] = ("", "")
    """Variables in which a scheduler's own launcher gives a rank its number and the number of ranks."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to export before it starts."""
    why: str = ""
    """The reason for these variables, as a comment of the script."""
    warn: str = 'kill -USR1 "$run"'
    """Shell line that passes a warning on to the ranks, which the process $run started."""


def _of_mpi(name: str) -> Launcher:
    """Open MPI, up to 4 and from 5 on, binds a rank to one core or to a part of the node; the ranks of this
    program share the cores out themselves. Other MPIs do not read these variables."""
    return Launcher(
        name,
        lambda mpi: [name, "-n", COUNT, "--hostfile", '"$hosts"'],
        (name, "-n", '"$nodes"', "--hostfile", '"$once"'),
        environment={
            "OMPI_MCA_hwloc_base_binding_policy": "none",
            "PRTE_MCA_hwloc_default_binding_policy": "none",
        },
        why="Open MPI must not bind ranks to cores: they divide the cores among themselves.",
    )


TORCHRUN = Launcher(
    "torchrun",
    # A warning would kill it before it reaches any rank.
    lambda mpi: [
        'bash -c \'trap "" USR1; exec "$@"\' ranks',
        "torchrun",
        "--standalone",
        "--nproc-per-node=$((devices + 1))",
        "--no-python",
    ],
    once_a_node=(),
    warn='pkill -USR1 -P "$run"',
)
"""The launcher for one node, where no MPI is needed."""

LAUNCHERS = (_of_mpi("mpiexec"), _of_mpi("mpirun"), TORCHRUN)
"""Launchers that work under every scheduler and without one."""
