"""A driver of the conduct in real time: its threads and files, and what is left for those who do the work.
`aiperf.conduct` decides what a group does next; a driver carries it out. `Worker` does it with torch,
`PretendingWorker` by waiting."""

from __future__ import annotations

import logging
import socket
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Generic, TypeVar

from aiperf.conduct.actions import Action, Close, GiveUp, OfTrial, Prepare, Say, Work
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
from aiperf.host.scheduler_warning import ALL, held
from aiperf.journal.run_files import RunFiles
from aiperf.os_error import refused, unwritable
from aiperf.telemetry.recorder import Recorder
from aiperf.wire.layout import Place
from aiperf.wire.messages import (
    Assign,
    CheckDevice,
    Evaluate,
    MeasureCeiling,
    MeasureControl,
    Observe,
    Quit,
    Release,
)
from aiperf.wire.reports import Ceiling, Control, DeviceCheck, Evaluated, FromGroup
from nas.bounded import read_text

log = logging.getLogger(__name__)

PROBE_SECONDS = 5.0  # a network file system shows a new file late: it remembers that there was none

S = TypeVar("S")
"""What a trial starts from once it is prepared."""
K = TypeVar("K")
"""What is kept of a trial, in memory and in a file."""
Answer = Begun | BlockDone | ValidationDone | Failed | Answered


class Driver(ABC, Generic[S, K]):
    """A rank: one thread listens, one prepares and one writes while the caller's own does the work."""

    files: RunFiles

    def __init__(self, conduct: Conduct, send: Callable[[FromGroup], None], place: Place) -> None:
        """`send` may be called from any thread."""
        self.conduct, self.send, self.place = conduct, send, place
        self.host, self.clock = socket.gethostname(), time.perf_counter
        self.where = f"rank {place.rank} on {self.host}"
        self.last: tuple[int, K] | None = None
        """The trial that this rank trained last, and what it kept. A child of it may be next."""
        self._recorder: Recorder | None = None
        self._lock = threading.Lock()
        self._works: SimpleQueue[Work | Exception] = SimpleQueue()
        # One thread each, so that trials are prepared, and files written, in the order of the decisions.
        self._preparing = ThreadPoolExecutor(1, "prepare", self.enter_preparing)
        self._writing = ThreadPoolExecutor(1, "write")
        self._starts: dict[Attempt, Future[S]] = {}

    def take(self, event: Event) -> None:
        """Lets the conduct decide, and begins what it asks for; from any thread, and it does not wait. Say
        and Observe are carried out at once, all others one after the other by `work`."""
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
        """Does all work until Quit, and what is left to be written. Raises what another thread could not
        handle, and what the work itself raises."""
        try:
            while not isinstance(work := self.next_work(), Quit):
                if (answer := self._do(work)) is not None:
                    self.take(answer)
            # Waits for files that are being written: the master hears of each when it is whole.
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
        """Ends the preparation of a trial that will not begin. One that is running goes on to its end, and
        nobody uses what it makes."""
        key = work.assign.trial.number, work.assign.attempt
        if start := self._starts.pop(key, None):
            start.cancel()

    def kept(self, trial: int) -> K:
        """What was kept of a trial: from memory if this rank trained it last, otherwise from its file. Raises
        DataError as `read` does."""
        last = self.last  # the writing thread may replace it at any moment
        if last is not None and last[0] == trial:
            return last[1]
        return self.read(self.files.weights(trial))

    def write(self, close: Close, kept: K | None) -> None:
        """Begins to write what a closed trial kept, if it kept anything."""
        self._writing.submit(self._write, close, kept)

    def failed(self, error: BaseException, out_of_memory: bool = False) -> Failed:
        """The event of a trial that raised this error on this rank."""
        text = "".join(traceback.format_exception(error))
        what = refused(error) if isinstance(error, OSError) else error
        return Failed(True, f"{self.where}: {type(error).__name__}: {what}", out_of_memory, text)

    def observe(self, message: Observe) -> None:
        """Begins to record, on the first rank of a host for all; if that is not possible, the run goes on."""
        if self.place.device_index == 0 and self._recorder is None:
            try:
                with held(*ALL):  # for good: it ends with its input
                    self._recorder = self.recorder(message)
            except OSError as error:
                log.error("nothing is recorded on %s: %s", self.host, error)

    def end_recording(self) -> None:
        """Ends the process that records this host, if this rank has one."""
        if self._recorder is not None:
            self._recorder.close()

    @abstractmethod
    def recorder(self, message: Observe) -> Recorder:
        """A recorder of this host. Raises OSError if its process cannot be started."""

    @abstractmethod
    def measure_ceiling(self, seconds: float) -> Ceiling:
        """Measures the device, in about this many seconds."""

    @abstractmethod
    def measure_control(self, seconds: float) -> Control:
        """Measures the control of the run's task, in about this many seconds."""

    @abstractmethod
    def check_device(self, seconds: float) -> DeviceCheck:
        """Trains the network of the device check, in about this many seconds."""

    def release(self, message: Release) -> None:
        """Takes what the master chose for those that compute."""

    @abstractmethod
    def evaluate(self, trial: int) -> Evaluated:
        """Tests the network that was kept of a trial."""

    @abstractmethod
    def do(self, work: OfTrial) -> Answer | None:
        """Does one work of a trial and answers it. What it raises ends the worker."""

    def enter_preparing(self) -> None:
        """Is called first on the thread that prepares."""

    @abstractmethod
    def start_of(self, assign: Assign) -> S:
        """Prepares a trial, on a thread of its own. What it raises is raised again by the future."""

    @abstractmethod
    def built(self, start: S) -> Built:
        """What the conduct needs to know of a prepared trial."""

    @abstractmethod
    def save(self, path: Path, kept: K) -> str:
        """Writes what was kept into a file; returns its SHA-256."""

    @abstractmethod
    def read(self, path: Path) -> K:
        """Reads such a file. Raises DataError if it is absent or damaged."""

    def _act(self, action: Action) -> None:
        """Carries out what needs no work: a message, with its age, and the start of a recording."""
        if isinstance(action, Say):
            self.send(action.aged(self.clock()))
        elif isinstance(action, Observe):
            self.observe(action)

    def _do(self, work: Work) -> Answer | None:
        """Does one work, and returns the event that answers it, or None if none does."""
        if isinstance(work, MeasureCeiling):
            return Answered((self.measure_ceiling(work.seconds),))
        if isinstance(work, MeasureControl):
            return Answered((self.measure_control(work.seconds),))
        if isinstance(work, CheckDevice):
            # No ranks are named: all of them are meant.
            mine = not work.ranks or self.place.rank in work.ranks
            return Answered((self.check_device(work.seconds),) if mine else ())
        if isinstance(work, Evaluate):
            return Answered((self.evaluate(work.trial),))
        if isinstance(work, Release):
            self.release(work)
            return None
        if isinstance(work, GiveUp):
            self.give_up(work)
            return None
        assert isinstance(work, OfTrial), work
        return self.do(work)

    def _start(self, assign: Assign) -> S:
        """Prepares a trial and says that it is over, whatever was raised."""
        built: Built | None = None
        try:
            start = self.start_of(assign)
            built = self.built(start)
            return start
        finally:  # well or badly, and then the future tells why
            self.hear(Prepared(assign.trial.number, assign.attempt, built))

    def _write(self, close: Close, kept: K | None) -> None:
        """Writes what was kept. An error of the file system is a failure of the trial, whose weights no child
        could read."""
        path, written, failed = self.files.weights(close.trial), "", None
        try:
            if kept is not None:
                written = self.save(path, kept)
                self.last = close.trial, kept
        except OSError as error:
            failed = Failed(reason=f"{self.where}: {unwritable(error, path)}")
        except Exception as error:  # the future would keep it
            failed = self.failed(error)
        self.hear(WeightsWritten(close.trial, close.attempt, written, failed))


def sees_run(files: RunFiles, probe: str) -> bool:
    """Whether this rank sees the run directory of the master, and not another of the same name: whether the
    probe file holds that text, or will in a moment. An empty one is not looked for. It waits PROBE_SECONDS at
    most."""
    until = time.monotonic() + PROBE_SECONDS
    while probe:
        try:
            if read_text(files.probe) == probe:
                return True
        except OSError as error:
            log.info("%s: %s", files.probe, error.strerror)
        if time.monotonic() > until:
            return False
        time.sleep(0.5)
    return True
