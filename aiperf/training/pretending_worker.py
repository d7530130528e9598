"""A rank that only pretends to train: it answers as `aiperf.training.worker` does, after the times that
assumptions say.

Messages, kept files and the log of its own steps are real; there is no device, no data and no torch.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from aiperf.code import code_hash
from aiperf.errors import DataError
from aiperf.files import RunFiles
from aiperf.pretending.assumptions import Assumptions
from aiperf.pretending.course import Course, CourseEnd, Learnt, Wait
from aiperf.pretending.rank import (
    pretended_ceiling,
    pretended_control,
    pretended_group,
    pretended_ready,
)
from aiperf.proposing.pace import WORKING_SECONDS, Pace
from aiperf.telemetry.recorder import Recorder
from aiperf.training.kept_network import Kept, read_any_kept, write_kept
from aiperf.training.probe import sees_run
from aiperf.training.rank_log import NoLog, OwnLog, StepLog
from aiperf.trial import State, Trial
from aiperf.warned import ALL, held
from aiperf.wire import messages
from aiperf.wire.layout import Place
from nas.record import graph_from_json

EXAMPLES, RATE_OFFSET = "learnt.examples", "learnt.rate_offset"
"""Of the two numbers of `Learnt`, an array each."""

log = logging.getLogger(__name__)


class Dismissed(Exception):
    """The worker is to end at once."""


@dataclass(frozen=True)
class _Ahead:
    """A trial on its way: the future of what it starts from."""

    assign: messages.Assign
    start: Future[Learnt]
    asked: float
    """In `perf_counter` seconds."""


class PretendingWorker:
    """One rank. Of a group of several only the leader pretends to train; the others answer what each rank is
    asked before the span."""

    def __init__(
        self, place: Place, assumptions: Assumptions, say: Callable[[messages.FromGroup], None]
    ) -> None:
        self.place, self.assumptions, self.say = place, assumptions, say
        self.host = socket.gethostname()
        self.work: queue.SimpleQueue[messages.ToGroup | _Ahead] = queue.SimpleQueue()
        self.halted, self.ended = threading.Event(), threading.Event()
        self.pace = Pace(self.halted.is_set)
        self.preparing = ThreadPoolExecutor(1, "prepare")
        self.writing = ThreadPoolExecutor(1, "write")
        self.last: tuple[int, Learnt] | None = None
        self.log: OwnLog = NoLog()

    def take(self, message: messages.ToGroup) -> None:
        """A message of the master; from any thread, and it does not wait."""
        if isinstance(message, messages.Assign):
            if self.place.leads:
                start = self.preparing.submit(self._prepare, message)
                self.work.put(_Ahead(message, start, time.perf_counter()))
        elif isinstance(message, messages.Release):
            self.pace.release(message.seconds_left, message.block_seconds)
        elif isinstance(message, messages.Stop):
            self.halted.set()
        else:
            if isinstance(message, messages.Quit):
                self.ended.set()
            self.work.put(message)

    def serve(self) -> None:
        """From initialisation to Quit."""
        began = time.perf_counter()
        if isinstance(setup := self.work.get(), messages.Quit):
            return
        assert isinstance(setup, messages.Setup), setup
        self.config, self.files = setup.config, RunFiles(Path(setup.directory))
        seed = graph_from_json(setup.seed_graph)
        self.pretended = pretended_group(self.assumptions, setup.config, seed, self.place.group)
        with ExitStack() as stack:
            stack.callback(self.writing.shutdown)
            stack.callback(self.preparing.shutdown, cancel_futures=True)
            if self.place.leads:
                self.log = stack.enter_context(StepLog(self.files.witness(self.host, self.place.rank)))
            shared, seconds = sees_run(self.files, setup.probe), time.perf_counter() - began
            self.say(
                pretended_ready(
                    self.pretended,
                    rank=self.place.rank,
                    host=self.host,
                    pid=os.getpid(),
                    code_hash=code_hash(),
                    sees_run=shared,
                    seconds=seconds,
                    wall_seconds=time.time(),
                    device_id="",
                    visible_devices=1,
                )
            )
            self._work(stack)

    def _work(self, stack: ExitStack) -> None:
        rank, measuring = self.place.rank, self.assumptions.startup.measuring_seconds / 2
        while not isinstance(job := self.work.get(), messages.Quit):
            if isinstance(job, messages.Evaluate) and self.place.leads:
                self._evaluate(job.trial)
            elif isinstance(job, messages.MeasureCeiling):
                self._wait_until(time.perf_counter() + measuring)
                self.say(pretended_ceiling(self.pretended, rank, self.host))
            elif isinstance(job, messages.MeasureControl):
                self._wait_until(time.perf_counter() + measuring)
                self.say(pretended_control(self.pretended, rank, self.host))
            elif isinstance(job, messages.Observe):
                self._observe(stack)
            elif isinstance(job, _Ahead):
                self._attempt(job)

    def _observe(self, stack: ExitStack) -> None:
        """The host is recorded as in a run; it has no devices."""
        if self.place.device_index == 0:
            try:
                with held(*ALL):
                    stack.callback(Recorder(self.files.telemetry(self.host), "", ()).close)
            except OSError as error:
                log.error("nothing is recorded on %s: %s", self.host, error)

    def _prepare(self, assign: messages.Assign) -> Learnt:
        """Beside the trial before, from the file that the parent left."""
        seed = Learnt(self.pretended.seed)
        parent = assign.trial.parent
        before = seed if parent is None else self._kept(parent)
        start = before.child(assign.trial, self.assumptions.spread)
        self._wait_until(time.perf_counter() + self.assumptions.trials.prepare_seconds)
        return start

    def _kept(self, trial: int) -> Learnt:
        """From memory when this group had it last, else from its file."""
        if self.last is not None and self.last[0] == trial:
            return self.last[1]
        return read_learnt(self.files.weights(trial))

    def _attempt(self, job: _Ahead) -> None:
        trial, number = job.assign.trial, job.assign.attempt
        if self.pace.must_close():
            job.start.cancel()
            self.say(messages.Finished(trial.number, number, State.WAITING, "never began"))
            return
        try:
            start = job.start.result()
            self._wait_until(time.perf_counter() + self.assumptions.trials.gap_seconds)
            preparing = time.perf_counter() - job.asked
            end = self._follow(self.pretended.course(trial, number, start, self.pace, preparing))
        except Dismissed:
            raise
        except Exception as error:  # as in training: what a trial raises ends that trial only
            self._fail(trial, number, error)
        else:
            self.writing.submit(self._finish, trial.number, number, end, time.perf_counter())

    def _follow(self, course: Course) -> CourseEnd:
        """Waits and speaks as the course says. A thread that wakes up late, as where much is to do, says
        how old its news is, and the next wait is the shorter: a device would not have waited for it."""
        due = time.perf_counter()
        try:
            while True:
                said = next(course)
                if isinstance(said, Wait):
                    due += said.seconds
                    self._wait_until(due, said.validates)
                else:
                    self._write_down(said, due)
        except StopIteration as end:
            found: CourseEnd = end.value
            return found

    def _write_down(self, said: messages.Started | messages.Steps | messages.Validated, due: float) -> None:
        """In the rank's own log, and then to the master."""
        alone = len(self.place.group) == 1
        if isinstance(said, messages.Steps):
            block = said.block
            self.log.steps(block.trial, block.attempt, block.segment, block.steps, block.examples)
            said = replace(said, age_seconds=max(0.0, time.perf_counter() - due))
        elif isinstance(said, messages.Validated):
            closed = said.segment
            self.log.answers(closed.trial, closed.attempt, closed.index, closed.tally)
            logs = sha256(self.log.digest()).hexdigest() if alone else ""
            said = replace(said, age_seconds=max(0.0, time.perf_counter() - due), logs=logs)
        self.say(said)

    def _wait_until(self, due: float, working: bool = False) -> None:
        """Raises Dismissed."""
        while (left := due - time.perf_counter()) > 0:
            if self.ended.wait(min(left, WORKING_SECONDS) if working else left):
                raise Dismissed
            if working and left > WORKING_SECONDS:
                self.say(messages.Working())

    def _finish(self, trial: int, attempt: int, end: CourseEnd, ended: float) -> None:
        """Writes the file, then tells: a finished trial can be a parent at once."""
        finished = messages.Finished(trial, attempt, end.state, end.reason, kept=end.segment)
        try:
            if end.kept is not None:
                finished = replace(finished, weights=write_learnt(self.files.weights(trial), end.kept))
                self.last = (trial, end.kept)
        except OSError as error:
            reason = f"{self.files.weights(trial)} cannot be written ({error.strerror})"
            finished = messages.Finished(trial, attempt, State.FAILED, self._signed(reason))
        self.say(replace(finished, age_seconds=time.perf_counter() - ended))

    def _fail(self, trial: Trial, attempt: int, error: Exception) -> None:
        reason = self._signed(f"{type(error).__name__}: {error}")
        text = "".join(traceback.format_exception(error))
        self.say(messages.Finished(trial.number, attempt, State.FAILED, reason, traceback=text))

    def _evaluate(self, trial: int) -> None:
        learnt, of = self._kept(trial), self.pretended.manifest["test_examples"]
        seconds = self.pretended.validate_seconds(learnt, of)
        self._wait_until(time.perf_counter() + seconds, working=True)
        self.say(messages.Evaluated(trial, self.pretended.tally(learnt, of), seconds))

    def _signed(self, reason: str) -> str:
        return f"rank {self.place.rank} on {self.host}: {reason}"


def write_learnt(path: Path, learnt: Learnt) -> str:
    """As `write_kept`: a real file, with two numbers in place of all weights."""
    examples, offset = np.array([learnt.examples], np.int64), np.array([learnt.rate_offset], np.float64)
    return write_kept(path, Kept(learnt.graph, {EXAMPLES: examples, RATE_OFFSET: offset}, {}))


def read_learnt(path: Path) -> Learnt:
    """Raises DataError for a file that is absent, damaged, or of a trial that was trained."""
    kept = read_any_kept(path)
    if kept.weights.keys() != {EXAMPLES, RATE_OFFSET}:
        raise DataError(f"{path}: no pretended trial left this file")
    return Learnt(kept.graph, int(kept.weights[EXAMPLES][0]), float(kept.weights[RATE_OFFSET][0]))
