"""A rank that only pretends to train: it answers as `aiperf.training.worker` does, after the times that
assumptions say.

Messages, kept files and the log of its own steps are real; there is no device, no data and no torch.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from aiperf.conduct.actions import Begin, Close, Keep, OfTrial, Train, Validate
from aiperf.conduct.conduct import Conduct
from aiperf.conduct.events import Begun, Built, Event, Failed
from aiperf.errors import DataError
from aiperf.host.code import code_hash
from aiperf.journal.run_files import RunFiles
from aiperf.pretending.assumptions import Assumptions
from aiperf.pretending.group_model import Learnt, PretendedTrial
from aiperf.pretending.rank_report import (
    pretended_ceiling,
    pretended_control,
    pretended_group,
    pretended_ready,
)
from aiperf.proposing.pace import WORKING_SECONDS
from aiperf.telemetry.recorder import Recorder
from aiperf.training.driver import Answer, Driver, sees_run
from aiperf.training.kept_network import Kept, read_any_kept, write_kept
from aiperf.training.rank_log import NoLog, StepLog
from aiperf.wire import messages, reports
from aiperf.wire.layout import Place
from nas.record import graph_from_json

EXAMPLES, RATE_OFFSET = "learnt.examples", "learnt.rate_offset"
"""Names of the two numbers of `Learnt`, an array each."""


class Dismissed(Exception):
    """The worker is to end at once."""


class PretendingWorker(Driver[PretendedTrial, Learnt]):
    """One rank. Of a group of several only the leader pretends to train; the others answer what each rank is
    asked before the span."""

    def __init__(
        self, place: Place, assumptions: Assumptions, say: Callable[[reports.FromGroup], None]
    ) -> None:
        """`assumptions` are how long everything takes. `say` sends a message to the master, from any
        thread."""
        super().__init__(Conduct(), say, place)
        self.assumptions = assumptions
        self.first: queue.SimpleQueue[messages.ToGroup] = queue.SimpleQueue()
        """The messages before the conduct begins: Setup, or Quit."""
        self.ended = threading.Event()
        self.trial: PretendedTrial | None = None
        self.due = 0.0
        """When the last work of the trial ended, or should have ended. A thread that wakes up late, as on a
        busy host, says how old its news is, and its next wait is shorter: a device would not have waited."""
        self.log: NoLog = NoLog()

    def take(self, event: Event) -> None:
        """Quit ends whatever waits; the messages before the conduct begins go to `serve`. A rank that does
        not lead has no trials."""
        if isinstance(event, messages.Quit):
            self.ended.set()
            self.first.put(event)
        if isinstance(event, messages.Setup):
            self.first.put(event)
        elif self.place.leads or not isinstance(event, messages.Assign | messages.Evaluate):
            super().take(event)

    def serve(self) -> None:
        """From initialisation to Quit."""
        began = self.clock()
        if isinstance(setup := self.first.get(), messages.Quit):
            return
        assert isinstance(setup, messages.Setup), setup
        self.config, self.files = setup.config, RunFiles(Path(setup.directory), salt=setup.salt)
        seed = graph_from_json(setup.seed_graph)
        own = pretended_group(self.assumptions, setup.config, seed, self.place.group)
        self.pretended = replace(own, ready=self.clock())
        with ExitStack() as stack:
            stack.callback(self.end_recording)
            if self.place.leads:
                self.log = stack.enter_context(StepLog(self.files.witness(self.host, self.place.rank)))
            shared, seconds = sees_run(self.files, setup.probe), self.clock() - began
            self.send(
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
            self.work()

    def recorder(self, message: messages.Observe) -> Recorder:
        """The host is recorded as in a run; it has no devices."""
        return Recorder(self.files.telemetry(self.host), "", {})

    def start_of(self, assign: messages.Assign) -> PretendedTrial:
        """Beside the trial before, from the file that the parent left."""
        trial, parent = assign.trial, assign.trial.parent
        before = self.pretended.untrained if parent is None else self.kept(parent)
        start = before.child(trial, self.assumptions.spread)
        self._wait_until(self.clock() + self.assumptions.trials.prepare_seconds)
        return self.pretended.begun(trial, assign.attempt, start)

    def built(self, start: PretendedTrial) -> Built:
        return start.built

    def measure_ceiling(self, seconds: float) -> reports.Ceiling:
        """Half of the assumed time is that of the ceilings, the other half that of the control."""
        self._wait_until(self.clock() + self.assumptions.startup.measuring_seconds / 2)
        return pretended_ceiling(self.pretended, self.place.rank, self.host)

    def measure_control(self, seconds: float) -> reports.Control:
        self._wait_until(self.clock() + self.assumptions.startup.measuring_seconds / 2)
        return pretended_control(self.pretended, self.place.rank, self.host)

    def check_device(self, seconds: float) -> reports.DeviceCheck:
        return reports.DeviceCheck(self.place.rank, (), 0, 0.0, why_not="this rank only pretends to train")

    def save(self, path: Path, kept: Learnt) -> str:
        return write_learnt(path, kept)

    def read(self, path: Path) -> Learnt:
        return read_learnt(path)

    def _begin(self, begin: Begin) -> Begun | Failed:
        """Takes up a trial after the gap that the model assumes between two trials."""
        start = self.start(begin.assign)
        if isinstance(error := start.exception(), Dismissed):
            raise error
        if error:
            return self.failed(error)
        self.trial = start.result()
        self._wait_until(self.clock() + self.assumptions.trials.gap_seconds)
        self.due = self.clock()
        return Begun()

    def do(self, work: OfTrial) -> Answer | None:
        """The rank's own log has a work before the master hears of it."""
        if isinstance(work, Begin):
            return self._begin(work)
        trial = self.trial
        assert trial, work
        if isinstance(work, Train):
            seconds = trial.train_seconds(work.steps, self.due)
            self._wait(seconds)
            done = trial.trained(work, seconds, self.due)
            self.log.steps(*trial.number, work.segment, done.steps, done.examples)
            return done
        if isinstance(work, Validate):
            seconds = trial.validate_seconds(self.due)
            self._wait(seconds, working=True)
            validated = trial.validated(work, seconds, self.due)
            self.log.answers(*trial.number, work.segment, validated.tally)
            alone = len(self.place.group) == 1
            return replace(validated, logs=sha256(self.log.digest()).hexdigest() if alone else "")
        if isinstance(work, Keep):
            trial.keep(work)
        elif isinstance(work, Close):
            self.write(work, trial.kept)
        return None

    def _wait(self, seconds: float, working: bool = False) -> None:
        """The next work of a trial takes so long. `seconds` count from the end of the work before, not from
        now."""
        self.due += seconds
        self._wait_until(self.due, working)

    def _wait_until(self, due: float, working: bool = False) -> None:
        """Raises Dismissed."""
        while (left := due - self.clock()) > 0:
            # Wakes up at once if the run ends.
            if self.ended.wait(min(left, WORKING_SECONDS) if working else left):
                raise Dismissed
            if working and left > WORKING_SECONDS:
                self.send(messages.Working())

    def evaluate(self, trial: int) -> reports.Evaluated:
        """The test takes as long as a validation of as many examples, and longer once the devices have become
        hot."""
        learnt, of = self.kept(trial), self.pretended.manifest["test_examples"]
        now = self.clock()
        seconds = self.pretended.validate_seconds(learnt, of) * self.pretended.longer(now)
        self._wait_until(now + seconds, working=True)
        return reports.Evaluated(trial, self.pretended.tested(learnt), seconds)


def write_learnt(path: Path, learnt: Learnt) -> str:
    """As `write_kept`: a real file, with two numbers in place of all weights. Raises OSError as that does."""
    examples, offset = np.array([learnt.examples], np.int64), np.array([learnt.rate_offset], np.float64)
    return write_kept(path, Kept(learnt.graph, {EXAMPLES: examples, RATE_OFFSET: offset}, {}))


def read_learnt(path: Path) -> Learnt:
    """Raises DataError for a file that is absent, damaged, or of a trial that was trained."""
    kept = read_any_kept(path)
    if kept.weights.keys() != {EXAMPLES, RATE_OFFSET}:
        raise DataError(f"{path}: no pretended trial left this file")
    return Learnt(kept.graph, int(kept.weights[EXAMPLES][0]), float(kept.weights[RATE_OFFSET][0]))
