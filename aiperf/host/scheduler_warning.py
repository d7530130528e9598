"""Handling of a scheduler's warning, a signal that may reach every process of a job. All processes of this
program survive it; only the master acts on it.

Handlers are used, because SIG_IGN would also hold in a child process. A process of this program is ended by
SIGKILL, by the end of its parent, or by the end of its input.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

WARNINGS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
"""Signals that count as a warning. SIGUSR2 is that of Grid Engine (qsub(1), -notify), which sends it to the
whole process group of a job. SIGHUP means that the terminal is closed, or the connection to it is lost."""
ALL = (signal.SIGINT, *WARNINGS)

_noted: list[int] = []


@contextmanager
def held(*numbers: signal.Signals) -> Iterator[None]:
    """A context in which these signals are blocked. A process that is started inside keeps them blocked until
    it calls `outlive`, so that none ends it before it has its handlers: importing torch takes seconds."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def outlive() -> None:
    """Makes this process ignore the signals from now on; its master acts on them."""
    for number in ALL:
        signal.signal(number, _pass_over)
        signal.siginterrupt(number, False)  # a library may not expect EINTR
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ALL)


def heeded() -> tuple[signal.Signals, ...]:
    """The warnings on which a master acts. Under `nohup` SIGHUP is not among them, because the run continues
    without its terminal."""
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return tuple(number for number in WARNINGS if not (nohup and number == signal.SIGHUP))


def note() -> None:
    """Collects warnings for a master that is about to start, which reads them by `noted`. Ctrl-C still ends
    the process."""
    for number in heeded():
        signal.signal(number, _note)


def noted() -> list[int]:
    """The warnings that arrived since `note`."""
    return _noted


def _pass_over(number: int, frame: FrameType | None) -> None:
    pass


def _note(number: int, frame: FrameType | None) -> None:
    _noted.append(number)
