"""A process next to each rank that ends the job if MPI does not start.

In MPI_Init all ranks wait for each other, without letting other threads of their processes run. If a rank
dies there, a fault-tolerant launcher leaves the others waiting forever; so does a rank that hangs under any
launcher. The guard is a shell that waits for a word of its rank; only if that does not come does it start
Python, which says who is missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from aiperf.host import variables
from aiperf.ranks.launcher import VARIABLES, LaunchedRank
from aiperf.wording import counted
from nas.frozen import frozen

INIT_SECONDS = 900.0
"""Time limit for MPI to start, in seconds. Open MPI took 300 s for 512 ranks on two cores."""
FIRST_SECONDS = 30.0
"""Seconds that other ranks wait longer than rank 0, so that one line is printed and not one per rank."""
LAUNCHER_SECONDS = 5.0
"""Time in seconds for a launcher to end itself and all ranks, after it was asked to, or on its own because a
rank has died."""
LAUNCHERS = ("mpiexec", "mpirun", "prterun", "mpiexec.hydra")
DAEMONS = ("prted", "orted", "hydra_pmi_proxy")
"""Processes that start the ranks of a host for a launcher on another host."""
ON_HOST = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
"""Variables of Open MPI and of MPICH with the number of ranks on a host."""
DIED, LATE = 11, 128 + signal.SIGKILL
"""Exit codes of the shell that waits for the word of a rank: the rank has died, or is late."""
OUTLIVE = "trap '' TERM USR1 HUP"
"""Words of a shell that a scheduler's warning must not end."""


@frozen
class Start:
    """A rank in MPI_Init."""

    rank: int
    size: int
    host: str
    process: int
    launcher: int
    """The parent process of the rank."""
    fault_tolerant: bool
    on_host: int = 0
    """Number of ranks on this host; 0 if the launcher does not state it."""


@frozen
class Present:
    """A rank of the same host, as /proc shows it."""

    process: int
    stopped: bool


@contextlib.contextmanager
def guarded(launched: LaunchedRank, host: str) -> Iterator[None]:
    """A context in which MPI is started: its guard ends the job if this process dies inside, or takes too
    long."""
    tolerant, parent = launched.fault_tolerant, os.getppid()
    on_host = ranks_on_host(os.environ)
    start = Start(launched.rank, launched.size, host, os.getpid(), parent, tolerant, on_host)
    seconds = INIT_SECONDS + (FIRST_SECONDS if launched.rank else 0.0)
    python = [sys.executable, "-m", __name__, json.dumps(asdict(start))]
    # The rank has died if the input ends without a line, and is late if `timeout` kills the shell that waits
    # for one. Any other code says nothing of the rank: there is no such `timeout`.
    wait = f"{{ timeout -s KILL {seconds:g} sh -c 'read line || exit {DIED}'; code=$?; }} 2>/dev/null"
    act = f'case $code in {DIED}|{LATE}) exec "$@" $code; esac'
    words = ["sh", "-c", f"{OUTLIVE}; {wait}; {act}", "sh", *python]
    guard = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    assert guard.stdin is not None
    try:
        yield
    finally:  # an error of MPI is reported by this process itself
        with contextlib.suppress(OSError):  # somebody has killed the guard
            guard.stdin.write(b"connected\n")
            guard.stdin.close()
        guard.wait()


def ranks_on_host(environment: Mapping[str, str]) -> int:
    """Number of ranks on this host; 0 if the launcher does not state it."""
    numbers = (variables.number(variables.word(environment, name)) for name in ON_HOST)
    return next(filter(None, numbers), 0)


def ranks_of(launcher: int, processes: Path = Path("/proc")) -> dict[int, Present]:
    """The ranks on this host that a launcher, or its daemon, has started and that are alive."""
    found = {}
    for folder in processes.glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):  # it has ended, or is another user's
            state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if int(parent) != launcher or state in "ZX":
                continue
            rank = _rank((folder / "environ").read_bytes())
            if rank is not None:
                found[rank] = Present(int(folder.name), state in "Tt")
    return found


def _rank(environment: bytes) -> int | None:
    """The rank that the variables of a process state."""
    values: Mapping[str, str] = dict(
        entry.decode(errors="replace").split("=", 1) for entry in environment.split(b"\0") if b"=" in entry
    )
    for name, _, _ in VARIABLES:
        if values.get(name, "").isdecimal():
            return int(values[name])
    return None


def who_is_missing(start: Start, present: Mapping[int, Present]) -> str:
    """The most probable reason why MPI does not start."""
    if stopped := [rank for rank, each in sorted(present.items()) if each.stopped]:
        named = ", ".join(f"rank {rank} (process {present[rank].process})" for rank in stopped[:10])
        return f"{named} on {start.host} is stopped"
    if start.on_host == start.size:
        if dead := sorted(set(range(start.size)) - present.keys()):
            return f"rank {', '.join(map(str, dead[:10]))} on {start.host} is dead"
    elif len(present) < start.on_host:
        return f"only {len(present)} of the {start.on_host} ranks on {start.host} are alive"
    alive = f"{counted(len(present), 'rank')} on {start.host} {'is' if len(present) == 1 else 'are'} alive"
    return f"{alive}; check the network and the other hosts"


def text_of(start: Start, died: bool, present: Mapping[int, Present]) -> str:
    """The line for the user."""
    remedy = "the job is ended; fix the cause, and start again"
    if died:
        what = f"rank {start.rank} on {start.host} died while MPI started, and the other ranks wait for it"
        return f"aiperf-hpc: {what}; {remedy}"
    minutes = f"{INIT_SECONDS / 60:.0f} minutes"
    return f"aiperf-hpc: MPI did not start within {minutes}: {who_is_missing(start, present)}; {remedy}"


def end_job(start: Start) -> None:
    """Ends the launcher, if it is one that can be told from other parents, and with it all ranks."""
    name = Path(f"/proc/{start.launcher}/comm")
    with contextlib.suppress(OSError):  # each may have ended
        if name.read_text().strip() in (*LAUNCHERS, *DAEMONS):
            os.kill(start.launcher, signal.SIGTERM)
            until = time.monotonic() + LAUNCHER_SECONDS
            while name.exists() and time.monotonic() < until:
                time.sleep(0.1)
            for each in ranks_of(start.launcher).values():
                os.kill(each.process, signal.SIGKILL)
            os.kill(start.launcher, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.kill(start.process, signal.SIGKILL)


def main() -> None:
    """Entry point of the guard, after its rank died, or has not started MPI in time."""
    start, died = Start(**json.loads(sys.argv[1])), sys.argv[2] == str(DIED)
    if died:
        if not start.fault_tolerant:  # the launcher ends all ranks, and says which one died
            return
        time.sleep(LAUNCHER_SECONDS)
        if not Path(f"/proc/{start.launcher}").exists():  # it has ended all ranks
            return
    print(text_of(start, died, ranks_of(start.launcher)), file=sys.stderr, flush=True)
    end_job(start)


if __name__ == "__main__":
    main()
