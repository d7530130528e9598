"""What launchers say of themselves."""

from __future__ import annotations

from aiperf.ranks import launcher
from tests.tables import ComesTo

OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "9"}
TORCHRUN = {"RANK": "2", "WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "x"}
SECRET = {"AIPERF_SECRET_FILE": "/home/me/secret"}
DAEMONS = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}


def test_what_launchers_say_of_a_rank(comes_to_what_was_read: ComesTo) -> None:
    """Which rank it is, or none, or one line with the variable that is wrong."""
    comes_to_what_was_read("launched.txt", vars(launcher) | globals())
