"""The end of MPI in a process: nothing that MPI waits for may hold it for ever."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import time
from types import SimpleNamespace
from aiperf.ranks import connect
connect.FINALIZE_SECONDS = 0.5
for tolerant, waits in ((True, 0.0), (False, 1.0), (True, 50.0)):
    end = SimpleNamespace(orphaned=False, fault_tolerant=tolerant)
    end.flush, end.finalize = lambda seconds: None, lambda: time.sleep(waits)
    connect.disconnect(end)
    time.sleep(1.0)
    print(f"let go after {waits} s", flush=True)
"""


def test_a_process_that_mpi_does_not_let_go_is_ended_and_no_other() -> None:
    """One that it lets go is left alone, and one without fault tolerance, which its launcher ends."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=40)
    assert (ended.returncode, ended.stdout) == (-9, "let go after 0.0 s\nlet go after 1.0 s\n")
