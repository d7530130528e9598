"""A driver of the conduct in real time: its threads, and what is left for those who really do the work."""

from __future__ import annotations

import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Generic, TypeVar

from aiperf.conduct.actions import Action, Close, GiveUp, Prepare, Say, Work
from aiperf.conduct.conduct import Attempt, Conduct
from aiperf.conduct.events import (
    Answered,
    Begun,
    BlockDone,
    Built,
    Event,
    Failed,
    Prepared,
    ValidationDone,
    WeightsWritten,
)
from aiperf.os_error import refused, unwritable
from aiperf.wire.messages import Assign, FromGroup, Observe, Quit

S = TypeVar("S")
"""What a trial starts from once it is prepared."""
Answer = Begun | BlockDone | ValidationDone | Failed | Answered


class Driver(ABC, Generic[S]):
    """One thread listens, one prepares and one writes while the caller's own does the work."""

    def __init__(
        self,
        conduct: Conduct,
        send: Callable[[FromGroup], None],
        where: str,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`send` may be called from any thread; `where` names rank and host in what went wrong."""
        self.conduct, self.send, self.where, self.clock = conduct, send, where, clock
        self._lock = threading.Lock()
        self._works: SimpleQueue[Work | Exception] = SimpleQueue()
        self._preparing = ThreadPoolExecutor(1, "prepare", self.enter_preparing)
        self._writing = ThreadPoolExecutor(1, "write")
        self._starts: dict[Attempt, Future[S]] = {}

    def take(self, event: Event) -> None:
        """Lets the conduct decide, and begins what it asks for; from any thread, and it does not wait."""
        with self._lock:
            actions = self.conduct.take(event, self.clock())
            for action in actions:  # under the lock, so that works keep the order of decisions
                if isinstance(action, Prepare):
                    self.prepare(action.assign)
                elif not isinstance(action, Say | Observe):
                    self._works.put(action)
        for action in actions:
            self._act(action)

    def hear(self, event: Event) -> None:
        """Takes an event on a thread beside the work; an error of that is raised where the work is done."""
        try:
            self.take(event)
        except Exception as error:
            self._works.put(error)

    def work(self) -> None:
        """Does all work until Quit, and what is left to be written."""
        try:
            while not isinstance(work := self.next_work(), Quit):
                if (answer := self.do(work)) is not None:
                    self.take(answer)
            self._writing.shutdown()
        finally:  # an error must not wait for a file system that hangs
            self._preparing.shutdown(wait=False, cancel_futures=True)
            self._writing.shutdown(wait=False)

    def next_work(self) -> Work:
        """Waits for what is to be done next. Raises what another thread could not handle."""
        if isinstance(work := self._works.get(), Exception):
            raise work
        return work

    def prepare(self, assign: Assign) -> None:
        """Begins to prepare a trial, after those before it."""
        key = assign.trial.number, assign.attempt
        self._starts[key] = self._preparing.submit(self._start, assign)

    def start(self, assign: Assign) -> Future[S]:
        """The preparation of a trial, which is now of the caller alone."""
        return self._starts.pop((assign.trial.number, assign.attempt))

    def give_up(self, work: GiveUp) -> None:
        """Ends the preparation of a trial that will not begin."""
        key = work.assign.trial.number, work.assign.attempt
        if start := self._starts.pop(key, None):
            start.cancel()

    def write(self, close: Close, path: Path, write: Callable[[], str]) -> None:
        """Begins to write what a closed trial kept; `write` returns the SHA-256 of the file at `path`."""
        self._writing.submit(self._write, close, path, write)

    def failed(self, error: BaseException, out_of_memory: bool = False) -> Failed:
        """The event of a trial that raised this error on this rank."""
        text = "".join(traceback.format_exception(error))
        what = refused(error) if isinstance(error, OSError) else error
        return Failed(True, f"{self.where}: {type(error).__name__}: {what}", out_of_memory, text)

    @abstractmethod
    def do(self, work: Work) -> Answer | None:
        """Does one work and answers it. What it raises ends the worker."""

    def enter_preparing(self) -> None:
        """Is called first on the thread that prepares."""

    @abstractmethod
    def start_of(self, assign: Assign) -> S:
        """Prepares a trial, on a thread of its own. What it raises is raised again by the future."""

    @abstractmethod
    def built(self, assign: Assign, start: S) -> Built:
        """What the conduct needs to know of a prepared trial."""

    @abstractmethod
    def observe(self, message: Observe) -> None:
        """Begins to record what the host does."""

    def _act(self, action: Action) -> None:
        if isinstance(action, Say):
            self.send(action.aged(self.clock()))
        elif isinstance(action, Observe):
            self.observe(action)

    def _start(self, assign: Assign) -> S:
        built: Built | None = None
        try:
            start = self.start_of(assign)
            built = self.built(assign, start)
            return start
        finally:  # well or badly, and then the future tells why
            self.hear(Prepared(assign.trial.number, assign.attempt, built))

    def _write(self, close: Close, path: Path, write: Callable[[], str]) -> None:
        written, failed = "", None
        try:
            written = write()
        except OSError as error:
            failed = Failed(reason=f"{self.where}: {unwritable(error, path)}")
        except Exception as error:  # the future would keep it
            failed = self.failed(error)
        self.hear(WeightsWritten(close.trial, close.attempt, written, failed))
