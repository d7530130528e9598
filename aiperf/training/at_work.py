"""What a rank reports of a trial, and that it goes on with long work which reports nothing by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter

from aiperf.proposing.pace import WORKING_SECONDS
from aiperf.wire.messages import Fallback, Started, Steps, Validated, Working

Report = Callable[[Started | Fallback | Steps | Validated | Working], None]
"""Takes what the leader of the group says, on every rank."""

PREPARE_SECONDS = 900.0  # of an engine in one trial: after that it is taken for one that hangs


class AtWork:
    """Says now and then that the rank is at work, while its thread waits for a compiler; not without end, for
    a compiler may hang."""

    def __init__(self, report: Report) -> None:
        self._report, self._done = report, threading.Event()
        self._thread = threading.Thread(target=self._say, name="working", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _say(self) -> None:
        until = perf_counter() + PREPARE_SECONDS
        while not self._done.wait(WORKING_SECONDS) and perf_counter() < until:
            self._report(Working())


class SignsOfLife:
    """Says now and then that a long validation goes on."""

    def __init__(self, report: Report) -> None:
        self._report, self._said = report, perf_counter()

    def __call__(self) -> None:
        if perf_counter() - self._said > WORKING_SECONDS:
            self._said = perf_counter()
            self._report(Working())
