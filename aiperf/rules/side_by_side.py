"""Work that is shared by processes which need nothing but what this process has read."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from aiperf.cores import allowed_cores
from aiperf.errors import AiperfError

Tell = Callable[[object], None]
Work = Callable[[int, int, Tell], None]
"""Does the part with this index of so many parts, and tells the parent process what it did."""
MOST_PROCESSES = 16
"""Each has its own copy of what it changes, which for a search is up to 5 kB per trial."""


def num_processes() -> int:
    """Processes that may work at the same time: one per processor that this process may use; 0 on other
    systems than Linux, which have no safe fork."""
    return min(allowed_cores(), MOST_PROCESSES) if sys.platform == "linux" else 0


def told_by(work: Work, processes: int) -> Iterator[tuple[int, object]]:
    """Shares the work between so many forked processes. Yields what each tells, with its index, until all
    have ended; if the caller stops earlier, they are ended.

    Raises AiperfError if a process dies.
    """
    with _started(work, processes) as (listening, children):
        while listening:
            for connection in wait(list(listening)):
                assert isinstance(connection, Connection)
                index = listening[connection]
                try:
                    told = connection.recv()
                except EOFError:
                    del listening[connection]
                    connection.close()
                    children[index].join()
                    if children[index].exitcode:
                        why = f"exit code {children[index].exitcode}"
                        raise AiperfError(f"a process that checked a part of the run ended: {why}") from None
                else:
                    yield index, told


@contextlib.contextmanager
def _started(work: Work, processes: int) -> Iterator[tuple[dict[Connection, int], list[BaseProcess]]]:
    fork = multiprocessing.get_context("fork")  # so that a long run is neither read nor held again
    listening, children = dict[Connection, int](), list[BaseProcess]()
    try:
        for index in range(processes):
            reader, writer = fork.Pipe(duplex=False)
            child = fork.Process(target=_child, args=(work, index, processes, writer), daemon=True)
            with warnings.catch_warnings():
                # Threads of numpy may exist, which Python 3.12 warns of. They are idle, and a child that
                # starts no threads and takes no lock of theirs does not miss them.
                warnings.simplefilter("ignore", DeprecationWarning)
                child.start()
            writer.close()
            listening[reader] = index
            children.append(child)
        yield listening, children
    finally:
        for started in children:
            started.terminate()
        for started in children:
            started.join()
        for reader in listening:
            reader.close()


def _child(work: Work, index: int, processes: int, writer: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends its children
    with contextlib.suppress(BrokenPipeError):  # the parent process was killed, so nobody waits for this
        work(index, processes, writer.send)
        writer.close()
