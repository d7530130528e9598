"""The end of MPI in a process: nothing that MPI waits for may hold it for ever."""

from __future__ import annotations

import subprocess
import sys
import time

PROGRAM = """
import time
from types import SimpleNamespace
from aiperf.ranks import connect
connect.FINALIZE_SECONDS = 0.5
end = SimpleNamespace(orphaned=False, fault_tolerant={tolerant})
end.flush, end.finalize = lambda seconds: None, lambda: time.sleep({waits})
connect.disconnect(end)
time.sleep(1.0)
"""


def ended(tolerant: bool, waits: float) -> tuple[int, float]:
    """The exit code of a process that MPI lets go after so many seconds, and how long it lived."""
    began = time.monotonic()
    program = PROGRAM.format(tolerant=tolerant, waits=waits)
    code = subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode
    return code, time.monotonic() - began


def test_a_process_that_mpi_does_not_let_go_is_ended() -> None:
    code, seconds = ended(tolerant=True, waits=50.0)
    assert code == -9
    assert seconds < 40


def test_one_that_it_lets_go_is_left_alone_afterwards() -> None:
    assert ended(tolerant=True, waits=0.0)[0] == 0


def test_without_fault_tolerance_the_launcher_ends_all() -> None:
    assert ended(tolerant=False, waits=1.0)[0] == 0
