"""The end of MPI in a process: nothing that MPI waits for may hold it for ever."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import time
from types import SimpleNamespace
from aiperf.ranks import connect
connect.FINALIZE_SECONDS = 0.5
for tolerant, waits in {ends}:
    end = SimpleNamespace(orphaned=False, fault_tolerant=tolerant)
    end.flush, end.finalize = lambda seconds: None, lambda: time.sleep(waits)
    connect.disconnect(end)
    time.sleep(1.0)
"""


def ended(*ends: tuple[bool, float]) -> int:
    """The exit code of a process that MPI, fault-tolerant or not, lets go after so many seconds."""
    program = PROGRAM.format(ends=ends)
    return subprocess.run([sys.executable, "-c", program], timeout=40, check=False).returncode


def test_a_process_that_mpi_does_not_let_go_is_ended() -> None:
    assert ended((True, 50.0)) == -9


def test_one_that_it_lets_go_or_that_a_launcher_ends_is_left_alone() -> None:
    assert ended((True, 0.0), (False, 1.0)) == 0
