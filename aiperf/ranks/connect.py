"""Start and end of the connections between ranks, over MPI or sockets."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

from aiperf.errors import WorldError
from aiperf.host import variables
from aiperf.ranks.launcher import BY_HAND, MOST_RANKS, RUN_ID, TORCHRUN, LaunchedRank
from aiperf.ranks.link import Link, mpi_library, mpi_module
from aiperf.ranks.meeting import meeting_of
from aiperf.ranks.network_link import NetworkLink
from aiperf.ranks.start_guard import LAUNCHERS, OUTLIVE, guarded
from aiperf.ranks.torchrun import HostLink

ABORT_SECONDS = 15
"""Time in seconds for the launcher to end all ranks."""
FINALIZE_SECONDS = 30
"""Time in seconds for all ranks to leave MPI."""


def connect(launched: LaunchedRank) -> Link:
    """Starts MPI in this process, or connects it to the other ranks by sockets. Raises WorldError if MPI is
    missing, or differs from the launcher's, and if the ranks cannot be reached."""
    if launched.launcher == TORCHRUN:
        remedy = "start the ranks with torchrun"
        on_host = variables.whole(os.environ, "LOCAL_WORLD_SIZE", 1, MOST_RANKS, remedy)
        if on_host in (None, launched.size):
            return HostLink(launched, variables.word(os.environ, RUN_ID))
    if launched.launcher in (TORCHRUN, BY_HAND):
        return NetworkLink(launched, meeting_of(os.environ, launched.launcher))
    mpi = mpi_module()
    if not mpi.Is_initialized():
        with guarded(launched, socket.gethostname()):
            mpi.Init_thread(mpi.THREAD_MULTIPLE)
    comm = mpi.COMM_WORLD
    comm.Set_errhandler(mpi.ERRORS_RETURN)
    if comm.size != launched.size:
        raise WorldError(
            f"{launched.launcher} started {launched.size} ranks, but MPI has {comm.size}: the library that "
            f"mpi4py found ({mpi_library()}) belongs to another MPI; use its mpiexec, or set MPI4PY_LIBMPI "
            f"to the launcher's library (with srun: try --mpi=pmix or --mpi=pmi2)"
        )
    # A communicator of our own: to create another one for some ranks, MPI sends messages over the one that it
    # is created from, and a thread that listens there would take them for the master's.
    return Link(comm.Dup(), launched.fault_tolerant)


def abort(link: Link, code: int) -> None:
    """Ends all ranks by force, even those that do not answer; `code` is the exit code of the launcher.

    After that, mpiexec of Open MPI 5 waits for the daemon of a host that cannot be reached any more, for
    eight minutes or forever (PRTE_MCA_oob_tcp_keepalive_time). So it is killed after ABORT_SECONDS.
    """
    parent = os.getppid()
    name = Path(f"/proc/{parent}/comm")
    own = name.read_text(encoding="utf-8", errors="replace").strip() if name.exists() else ""
    if own in LAUNCHERS:
        # Another process may have the launcher's number by then.
        _after(ABORT_SECONDS, f"grep -qx {own} {name} && kill -KILL {parent}; kill -KILL {os.getpid()}")
    link.abort(code)


def disconnect(link: Link) -> None:
    """Ends MPI in this process. All ranks that are alive must call it, otherwise it does not return on
    any."""
    link.flush(1.0)
    if link.orphaned:  # MPI has no launcher any more that could take part
        link.abandon()
        return
    # After the death of a rank, libraries such as Horovod may have left messages for which MPI waits forever,
    # and without letting other threads of this process run.
    guard = _after(FINALIZE_SECONDS, f"kill -KILL {os.getpid()}") if link.fault_tolerant else None
    link.finalize()
    if guard is not None:
        os.killpg(guard.pid, signal.SIGKILL)
        guard.wait()


def _after(seconds: float, command: str) -> subprocess.Popen[bytes]:
    """Starts a shell, in a session of its own, that runs a command after `seconds` and outlives a warning."""
    words, null = ["sh", "-c", f"{OUTLIVE}; sleep {seconds}; {command}"], subprocess.DEVNULL
    return subprocess.Popen(words, start_new_session=True, stdin=null, stdout=null, stderr=null)
