"""A scheduler's warning is a signal that may reach every process of a job; all of this program outlive it.

By handlers, because a child would take over SIG_IGN. What is to end a process of this program for good is
SIGKILL, the end of its parent, or the end of its input.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

WARNINGS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
"""The last is of a terminal that is closed, or a connection to it that is lost."""
ALL = (signal.SIGINT, *WARNINGS)

_noted: list[int] = []


@contextmanager
def held(*numbers: signal.Signals) -> Iterator[None]:
    """These signals wait. A process that is started here keeps them waiting until it calls `outlive`, so that
    none ends it before it has its handlers: to import torch takes seconds."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def outlive() -> None:
    """From now on this process, whose master answers the warning, takes no notice of it."""
    for number in ALL:
        signal.signal(number, _pass_over)
        signal.siginterrupt(number, False)  # a library may not expect EINTR
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ALL)


def heeded() -> tuple[signal.Signals, ...]:
    """The warnings that a master answers: under `nohup` it goes on without its terminal."""
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return tuple(number for number in WARNINGS if not (nohup and number == signal.SIGHUP))


def note() -> None:
    """The same, for a master that is about to begin: `noted` tells it what came. Ctrl-C ends it as ever."""
    for number in heeded():
        signal.signal(number, _note)


def noted() -> list[int]:
    """The warnings that came since `note`."""
    return _noted


def _pass_over(number: int, frame: FrameType | None) -> None:
    pass


def _note(number: int, frame: FrameType | None) -> None:
    _noted.append(number)
