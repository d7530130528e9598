"""A rank that trains: it prepares the next trial while it trains this one, and says what it did."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import queue
import socket
import threading
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from aiperf.code import code_hash
from aiperf.config import EAGER, ENGINES
from aiperf.data import load
from aiperf.device import Device, count_devices
from aiperf.device.device import is_out_of_memory
from aiperf.device.surroundings import read_settings
from aiperf.engines.made import refuse_unusable, why_not
from aiperf.engines.objective import NotFinite
from aiperf.errors import DataError, GroupBroken
from aiperf.files import RunFiles
from aiperf.measuring.before_span import RankWork, measure
from aiperf.measuring.control import measure_control
from aiperf.measuring.precision import format_rates, observed
from aiperf.measuring.step_times import Longest, measure_steps
from aiperf.parallel.parallel import Parallel, agree, lead
from aiperf.proposing.engine import Expected, choose
from aiperf.proposing.pace import Pace
from aiperf.proposing.proposals import drawn
from aiperf.tasks.known import task_of
from aiperf.telemetry.recorder import Recorder
from aiperf.training.built_trial import BuiltTrial, Rank, build
from aiperf.training.evaluation import Top5, evaluate
from aiperf.training.kept_network import Kept, read_kept, write_kept
from aiperf.training.probe import sees_run
from aiperf.training.rank_log import StepLog
from aiperf.training.train import Elsewhere, Here, TrialEnd, train
from aiperf.trial import State, Trial
from aiperf.warned import ALL, held
from aiperf.wire.layout import Place
from aiperf.wire.messages import (
    Assign,
    Control,
    Evaluate,
    Evaluated,
    Fallback,
    Finished,
    FromGroup,
    MeasureCeiling,
    MeasureControl,
    Observe,
    Quit,
    Ready,
    Release,
    Setup,
    Started,
    Steps,
    StepTime,
    Stop,
    ToGroup,
    Validated,
    Working,
)
from nas.modules import Network
from nas.ops import TENSOR_OPS
from nas.record import graph_from_json
from nas.search import typical
from nas.weights import digest, initial

log = logging.getLogger(__name__)

STEPS_SHARE = 0.5
"""Of the time for the ceilings, once more, for the engines' steps."""


class Channel(Protocol):
    """The worker's way to the master."""

    def send(self, message: FromGroup) -> None:
        """May be called from any thread."""

    def receive(self) -> ToGroup:
        """Waits for the next message. Raises EOFError when the master is gone."""


@dataclass(frozen=True)
class _Prepared:
    """A trial on its way: the future of its network."""

    assign: Assign
    attempt: Future[BuiltTrial]
    asked: float
    """In `perf_counter` seconds."""


class Worker:
    """One rank of a group: one thread listens, one prepares and one writes while this one trains.

    The leader says what the group does. All ranks do the same work in the same order, and agree on
    whatever depends on a clock or may fail on one of them.
    """

    def __init__(
        self, setup: Setup, channel: Channel, device: Device, place: Place, parallel: Parallel
    ) -> None:
        self.config, self.files, self.probe = setup.config, RunFiles(Path(setup.directory)), setup.probe
        self.seed = graph_from_json(setup.seed_graph)
        self.typical = typical(self.seed, setup.config.search.bounds, drawn(setup.config))
        self.channel, self.device, self.place, self.parallel = channel, device, place, parallel
        self.host = socket.gethostname()
        self.work: queue.SimpleQueue[
            _Prepared | MeasureCeiling | MeasureControl | Release | Evaluate | Quit
        ] = queue.SimpleQueue()
        self.halted = threading.Event()
        self.pace = Pace(self.halted.is_set)
        self.preparing = ThreadPoolExecutor(1, "prepare")
        self.writing = ThreadPoolExecutor(1, "write")
        self.last: tuple[int, Kept] | None = None
        self.recorder: Recorder | None = None
        self.step_times: Mapping[str, StepTime] = {}

    def serve(self) -> None:
        """From initialisation to Quit. Raises AiperfError for what ends the run before it began."""
        began = time.perf_counter()
        # First of all: its errors are reported before anybody waits for the rest.
        local_ranks = self.place.ranks_on_host
        data = load(self.config.data, self.device.torch, self.config.random_seed, local_ranks)
        refuse_unusable(self.seed, self.device, self.config.training, self.parallel.ranks)
        self.formats = format_rates(self.device)
        self.multiplies = observed(self.device, self.config.training.format)
        self.seed_weights = initial(self.seed, self.config.random_seed)
        with StepLog(self.files.witness(self.host, self.place.rank)) as own:
            self.rank = Rank(self.device, data, self.config.training, self.parallel, own)
            self.channel.send(self._ready(data.manifest, time.perf_counter() - began))
            threading.Thread(target=self._listen, name="listen", daemon=True).start()
            try:
                self._work()
            finally:
                if self.recorder is not None:
                    self.recorder.close()

    def _observe(self, message: Observe) -> None:
        """The first rank of a host records for all; a run goes on where that cannot be."""
        if self.place.device_index == 0 and self.recorder is None:
            file, devices = self.files.telemetry(self.host), message.devices.get(self.host, ())
            try:
                with held(*ALL):  # for good: it ends with its input
                    self.recorder = Recorder(file, self.device.sensors, devices)
            except OSError as error:
                log.error("nothing is recorded on %s: %s", self.host, error)

    def _ready(self, manifest: Mapping[str, Any], seconds: float) -> Ready:
        return Ready(
            rank=self.place.rank,
            host=self.host,
            pid=os.getpid(),
            device=self.device.name,
            memory_bytes=self.device.memory_bytes,
            software=self.device.software(),
            code_hash=code_hash(),
            data=manifest,
            initial_weights=digest(self.seed_weights),
            seconds=seconds,
            device_id=self.device.identity,
            visible_devices=count_devices(self.device.kind),
            sees_run=sees_run(self.files, self.probe),
            multiplies=self.multiplies,
            formats=self.formats,
            processor=self.device.processor,
            settings=read_settings(os.environ),
            wall_seconds=time.time(),  # at the moment of sending: to see the probe may take seconds
        )

    def _listen(self) -> None:
        """Turns messages into work. Ends the process when the master is gone: nobody would use its work."""
        while True:
            try:
                message = self.channel.receive()
            except (EOFError, OSError):
                log.error("the master is gone")
                os._exit(1)
            if isinstance(message, Assign):
                attempt = self.preparing.submit(self._prepare, message)
                self.work.put(_Prepared(message, attempt, time.perf_counter()))
            elif isinstance(message, Release):
                self.work.put(message)
                self.pace.release(message.seconds_left, message.block_seconds)
            elif isinstance(message, Stop):
                self.halted.set()
            elif isinstance(message, Observe):
                self._observe(message)
            elif isinstance(message, (MeasureCeiling, MeasureControl, Evaluate, Quit)):
                self.work.put(message)
            if isinstance(message, Quit):
                return

    def _work(self) -> None:
        while not isinstance(job := self.work.get(), Quit):
            if isinstance(job, Evaluate):
                self._evaluate(job.trial)
            elif isinstance(job, MeasureCeiling):
                self._measure_ceiling(job.seconds)
            elif isinstance(job, MeasureControl):
                self._measure_control(job.seconds)
            elif isinstance(job, Release):
                if threads := job.threads.get(str(self.place.rank)):  # of this thread, so here
                    self.device.use_threads(threads)
                self.step_times = job.steps or self.step_times
            elif lead(self.parallel, int(self.pace.must_close())):
                self._drop(job)
            else:
                self._attempt(job)
        self.writing.shutdown()

    def _measure_ceiling(self, seconds: float) -> None:
        training = self.config.training
        work = RankWork(self.typical, training.format, training.batch_size // self.parallel.ranks)
        rank, rate = self.place.rank, self.formats[training.format]
        measured = measure(self.device, work, self.parallel, rank, self.host, rate, seconds)
        if training.step != EAGER:
            examples = max(training.epochs) * self.rank.data.train.num_examples
            longest = Longest(examples // training.batch_size, 60 * self.config.limits.minutes or math.inf)
            share = STEPS_SHARE * seconds
            self.step_times = measure_steps(
                self.device, work, training, measured.seed, longest, self.parallel, share
            )
            found = self.step_times.get(training.step)
            reason = found.why_not if found else ""
            refuse_unusable(self.seed, self.device, training, self.parallel.ranks, reason)
        self.channel.send(replace(measured, steps=self.step_times))
        self.device.clean()

    def _measure_control(self, seconds: float) -> None:
        *others, own = measure_control(
            task_of(self.config.data).control, self.device, self.config.training.format, seconds
        )
        self.channel.send(
            Control(
                rank=self.place.rank,
                host=self.host,
                device=self.device.name,
                **vars(own),
                examples_per_second=own.examples_per_second,
                others=tuple(others),
            )
        )

    def _drop(self, job: _Prepared) -> None:
        job.attempt.cancel()
        self._say(Finished(job.assign.trial.number, job.assign.attempt, State.WAITING, "never began"))

    def _prepare(self, assign: Assign) -> BuiltTrial:
        return build(self.rank, assign.trial, assign.attempt, self._start_of(assign.trial))

    def _start_of(self, trial: Trial) -> Kept:
        """The child's network, with the weights and optimizer state that its parent's become."""
        seed = Kept(self.seed, self.seed_weights, {})
        kept = seed if trial.parent is None else self._kept(trial.parent)
        for morphism in trial.morphisms:
            kept = kept.grown(morphism)
        return kept

    def _kept(self, trial: int) -> Kept:
        """From memory when this group trained it last, else from its file."""
        if self.last is not None and self.last[0] == trial:
            return self.last[1]
        return read_kept(self.files.weights(trial))

    def _attempt(self, job: _Prepared) -> None:
        trial, number = job.assign.trial, job.assign.attempt
        try:
            attempt = self._prepared(job)
            key = attempt.network.graph.key
            waited = time.perf_counter() - job.asked
            attempt.wanted, why = self._choose(attempt)
            self._say(Started(trial.number, number, key, waited, attempt.wanted, why))
            with contextlib.closing(attempt):
                end = train(self.rank, attempt, self.pace, self._say)
        except Elsewhere as error:
            log.info("%s failed on another rank", error)
            self.device.clean()
        except Here as error:
            self._fail(trial, number, error.__cause__ or error)
        except NotFinite as error:  # of the whole group
            if self.place.leads:
                self._fail(trial, number, error)
        except Exception as error:  # a trial is foreign code: its errors end it alone, and are reported
            self._fail_in_collective(trial, number, error)
        else:
            ended = time.perf_counter()
            self.writing.submit(self._finish, trial.number, number, end, ended)

    def _choose(self, attempt: BuiltTrial) -> tuple[str, str]:
        """The engine for a trial, and why: on all ranks the one that the leader chooses."""
        graph, left = attempt.network.graph, self.pace.seconds_left()
        size = graph.cost.train.price(TENSOR_OPS) / self.typical.cost.train.price(TENSOR_OPS)
        size *= attempt.trial.hyper.batch_size / self.config.training.batch_size
        layers = len(graph.nodes) / len(self.typical.nodes)
        expected = Expected(attempt.plan.steps, size, layers, left)
        name, why = choose(self.config.training.step, self.step_times, expected)
        name = ENGINES[lead(self.parallel, ENGINES.index(name))]
        refused = why_not(name, graph, self.device, self.config.training, self.parallel.ranks)
        return (EAGER, refused) if refused else (name, why)

    def _prepared(self, job: _Prepared) -> BuiltTrial:
        """Raises Here, or Elsewhere, when the preparation failed."""
        failure = job.attempt.exception()
        if agree(self.parallel, failure is not None):
            raise (Here if failure else Elsewhere)(f"trial {job.assign.trial.number}: building") from failure
        return job.attempt.result()

    def _say(self, message: Started | Fallback | Steps | Validated | Working | Finished | Evaluated) -> None:
        """What the group says once, its leader says."""
        if self.place.leads:
            self.channel.send(message)

    def _finish(self, trial: int, attempt: int, end: TrialEnd, ended: float) -> None:
        """Writes the weights, then tells: a finished trial can be a parent at once."""
        finished = Finished(trial, attempt, end.state, end.reason, kept=end.segment)
        try:
            if end.kept is not None:
                if self.place.leads:
                    finished = replace(finished, weights=write_kept(self.files.weights(trial), end.kept))
                self.last = (trial, end.kept)
        except OSError as error:
            path = self.files.weights(trial)
            reason = f"{path} cannot be written ({error.strerror}); free some space or choose another "
            "directory"
            finished = Finished(trial, attempt, State.FAILED, self._signed(reason))
        self._say(replace(finished, age_seconds=time.perf_counter() - ended))

    def _fail_in_collective(self, trial: Trial, attempt: int, error: Exception) -> None:
        """Tells, when the failure is this rank's own. Raises GroupBroken in a group of several: the
        others wait in a collective that will never end, and the group must be started again."""
        if not self.parallel.is_of_another(error):
            self._fail(trial, attempt, error)
        if self.parallel.ranks > 1:
            raise GroupBroken(f"trial {trial.number} broke the group: {type(error).__name__}: {error}")

    def _fail(self, trial: Trial, attempt: int, error: BaseException) -> None:
        text = "".join(traceback.format_exception(error))
        log.error("trial %d, attempt %d failed\n%s", trial.number, attempt, text)
        self.channel.send(
            Finished(
                trial=trial.number,
                attempt=attempt,
                state=State.FAILED,
                reason=self._signed(f"{type(error).__name__}: {error}"),
                out_of_memory=is_out_of_memory(error),
                traceback=text,
            )
        )
        self.device.clean()

    def _evaluate(self, trial: int) -> None:
        kept = self._kept(trial)
        network = Network(kept.graph)
        network.load(kept.weights)
        network.place(self.device.torch)
        try:
            top5 = Top5(network, self.device.torch)
            tally, seconds = evaluate(self.rank, network, self.rank.data.test, look=top5.look)
        except NotFinite as error:  # on every rank of every group alike
            raise DataError(f"trial {trial}, the best, has no result on the test part: {error}") from None
        self._say(Evaluated(trial, tally, seconds, top5.total(self.rank)))

    def _signed(self, reason: str) -> str:
        return f"rank {self.place.rank} on {self.host}: {reason}"
