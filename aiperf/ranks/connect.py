"""The way into the messages between ranks, over MPI or torchrun's sockets, and the way out of them."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from aiperf.errors import WorldError
from aiperf.ranks.launched import TORCHRUN, Launched
from aiperf.ranks.link import Link, mpi_library, mpi_module
from aiperf.ranks.torchrun import SocketLink

LAUNCHERS = ("mpiexec", "mpirun", "prterun", "mpiexec.hydra")
ABORT_SECONDS = 15  # for the launcher to end all ranks
FINALIZE_SECONDS = 30  # for all ranks to leave MPI
OUTLIVE = "trap '' TERM USR1 HUP"  # a scheduler's warning


def connect(launched: Launched) -> Link:
    """Starts MPI in this process. Raises WorldError where it is missing, or another than the launcher's."""
    if launched.launcher == TORCHRUN:
        return SocketLink(launched, os.environ["TORCHELASTIC_RUN_ID"])
    mpi = mpi_module()
    if not mpi.Is_initialized():
        mpi.Init_thread(mpi.THREAD_MULTIPLE)
    comm = mpi.COMM_WORLD
    comm.Set_errhandler(mpi.ERRORS_RETURN)
    if comm.size != launched.size:
        raise WorldError(
            f"{launched.launcher} started {launched.size} ranks, but MPI has {comm.size}: the library that "
            f"mpi4py found ({mpi_library()}) belongs to another MPI; use its mpiexec, or set MPI4PY_LIBMPI "
            f"to the launcher's library (with srun: try --mpi=pmix or --mpi=pmi2)"
        )
    # Of our own: MPI makes a communicator of some ranks by messages over the one it is made from, which a
    # thread that listens there would take for the master's.
    return Link(comm.Dup(), launched.fault_tolerant)


def abort(link: Link, code: int) -> None:
    """Ends all ranks by force, those too that do not answer; `code` is what the launcher returns.

    mpiexec of Open MPI 5 then waits for the daemon of a host that cannot be reached any more, for eight
    minutes or for ever (PRTE_MCA_oob_tcp_keepalive_time); it is not waited for so long.
    """
    parent, null = os.getppid(), subprocess.DEVNULL
    name = Path(f"/proc/{parent}/comm")
    if name.exists() and name.read_text().strip() in LAUNCHERS:
        own = name.read_text().strip()
        end = f"{OUTLIVE}; sleep {ABORT_SECONDS}; grep -qx {own} {name} && kill -KILL {parent}; "
        end += f"kill -KILL {os.getpid()}"
        subprocess.Popen(["sh", "-c", end], start_new_session=True, stdin=null, stdout=null, stderr=null)
    link.abort(code)


def disconnect(link: Link) -> None:
    """Ends MPI in this process; all ranks that are alive do, or none comes back from it."""
    link.flush(1.0)
    if link.orphaned:  # there would be nobody to say it to
        return
    # After a death, libraries of Horovod's kind may have left messages that MPI waits for without end, and
    # without letting another thread of this process run.
    guard = _ended_after(FINALIZE_SECONDS) if link.fault_tolerant else None
    link.finalize()
    if guard is not None:
        os.killpg(guard.pid, signal.SIGKILL)
        guard.wait()


def _ended_after(seconds: float) -> subprocess.Popen[bytes]:
    """A process that kills this one when that time is over."""
    words = ["sh", "-c", f"{OUTLIVE}; sleep {seconds}; kill -KILL {os.getpid()}"]
    null = subprocess.DEVNULL
    return subprocess.Popen(words, start_new_session=True, stdin=null, stdout=null, stderr=null)
