"""A rank that trains: it prepares the next trial while it trains this one, and says what it did.

Long, and one file, because what a rank is asked before the span, the works of a trial, and how the ranks of a
group fail together share one state.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from aiperf.conduct.actions import Begin, Close, GiveUp, OfTrial, Work
from aiperf.conduct.conduct import Conduct, failure
from aiperf.conduct.events import Answered, Begun, Built, EngineFailed, Event, Failed, WeightsWritten
from aiperf.config import EAGER
from aiperf.data import load
from aiperf.data.training import NotFinite
from aiperf.device import Device, cgroup, count_devices
from aiperf.device.device import PREPARING, TRAINING, is_out_of_memory
from aiperf.device.near_cores import stay_near
from aiperf.engines.agreement import ELSEWHERE
from aiperf.engines.engine import placed
from aiperf.engines.registry import refuse_unusable, why_not
from aiperf.errors import AiperfError, DataError, GroupBroken
from aiperf.host.code import code_hash
from aiperf.journal.run_files import RunFiles
from aiperf.measuring.before_span import measure, network_seconds
from aiperf.measuring.control import measure_control
from aiperf.measuring.device_check import check_device
from aiperf.measuring.network_times import measure_network
from aiperf.measuring.precision import format_rates, used_formats
from aiperf.measuring.step_times import Timing
from aiperf.measuring.training_step import RankWork
from aiperf.parallel.parallel import Parallel, agree, everyone
from aiperf.proposing.engine_choice import Engines, Sizes
from aiperf.proposing.proposals import morphism_mix
from aiperf.proposing.thread_choice import Threads
from aiperf.tasks.registry import task_of
from aiperf.telemetry.recorder import Recorder, Watched
from aiperf.training.built_trial import BuiltTrial, Rank, build
from aiperf.training.driver import Answer, Driver, sees_run
from aiperf.training.evaluation import Top5, evaluate
from aiperf.training.kept_network import Kept, read_kept, write_kept
from aiperf.training.leader import distribute, follow
from aiperf.training.rank_log import StepLog
from aiperf.training.surroundings import read_settings
from aiperf.training.train import Elsewhere, Here, TrainedTrial
from aiperf.wire.layout import Place
from aiperf.wire.messages import Assign, Observe, Quit, Release, Setup, Stop, ToGroup, Working
from aiperf.wire.reports import (
    NEAR,
    NOTE,
    Ceiling,
    Control,
    DeviceCheck,
    Evaluated,
    FromGroup,
    HostUse,
    Ready,
)
from aiperf.wire.trial import Trial
from nas.record import graph_from_json
from nas.search import typical
from nas.weights import digest, initial

log = logging.getLogger(__name__)

STEPS_SHARE = 0.5
"""Time to measure the engines' steps, as a share of the time for the ceilings, to which it is added. On a CPU
it is spent together with that for the number of threads."""


class Channel(Protocol):
    """The worker's connection to the master."""

    def send(self, message: FromGroup) -> None:
        """May be called from any thread."""

    def receive(self) -> ToGroup:
        """Waits for the next message. Raises EOFError when the master is gone."""


class Worker(Driver[BuiltTrial, Kept]):
    """One rank of a group.

    The leader conducts, and sends the others each work of a trial before it is done. All ranks do the same
    work in the same order, and agree on whatever may fail on one of them.
    """

    def __init__(
        self, setup: Setup, channel: Channel, device: Device, place: Place, parallel: Parallel
    ) -> None:
        """`device` is bound, and `parallel` has joined the group. No data are read yet."""
        self.config, self.probe = setup.config, setup.probe
        self.files = RunFiles(Path(setup.directory), salt=setup.salt)
        self.seed = graph_from_json(setup.seed_graph)
        self.typical = typical(self.seed, setup.config.search.bounds, morphism_mix(setup.config))
        self.sizes = Sizes(self.seed, self.typical, self.config.training.batch_size)
        self.threads = Threads((), self.sizes.seed_size)
        """Chooses the threads of each trial, from what this rank measured before the span."""
        engines = Engines(self.config.training, self.sizes)
        super().__init__(Conduct(engines), channel.send, place)
        self.channel, self.device, self.parallel = channel, device, parallel
        self.followed: SimpleQueue[ToGroup] = SimpleQueue()
        """Messages in their order, on a rank that does not lead."""
        self.assigned: Assign | None = None
        """The trial that the group is at."""
        self.trained: TrainedTrial | None = None

    def serve(self) -> None:
        """Works from initialisation to Quit. Raises AiperfError for an error that ends the run before its
        clock starts."""
        with self.device.aside(TRAINING).begin():
            self._serve()

    def _serve(self) -> None:
        """Reads the data, measures the formats, reports this rank, and then works until Quit."""
        began = time.perf_counter()
        # First of all: its errors are reported before anybody waits for the rest.
        local_ranks = self.place.ranks_on_host
        data = load(self.config.data, self.device.torch, self.config.random_seed, local_ranks)
        # After `load`, which shares the cores that the launcher gave among the ranks of the host.
        self.near = stay_near(self.device.pci_address) if self.device.pci_address else ""
        refuse_unusable(self.seed, self.device, self.config.training, self.parallel.ranks)
        self.formats = format_rates(self.device)
        self.multiplies = used_formats(self.device, self.config.training.format)
        self.seed_weights = initial(self.seed, self.config.random_seed)
        with StepLog(self.files.witness(self.host, self.place.rank)) as own:
            self.rank = Rank(self.device, data, self.config.training, self.parallel, own, self.clock)
            self.send(self._ready(data.manifest, time.perf_counter() - began))
            threading.Thread(target=self._listen, name="listen", daemon=True).start()
            try:
                self.work()
            except AiperfError:
                raise
            except Exception as error:  # ours, and the others of the group must not wait for it
                log.exception("the worker fails")
                raise GroupBroken(f"{type(error).__name__}: {error}") from error
            finally:
                # NCCL's communicator waits without end for a graph with its collectives to be freed:
                # pytorch/pytorch#115388. The group is left after this.
                self._leave()
                self.end_recording()

    def _listen(self) -> None:
        """Hears the master. Ends the process when it is gone: nobody would use its work."""
        message: ToGroup | None = None
        while not isinstance(message, Quit):
            try:
                message = self.channel.receive()
            except (EOFError, OSError):
                log.error("the master is gone")
                os._exit(1)
            self.hear(message) if self.place.leads else self._queue(message)

    def _queue(self, message: ToGroup) -> None:
        """Queues a message on a rank that follows, whose clock decides nothing."""
        if isinstance(message, Observe):
            self.observe(message)
        elif not isinstance(message, Stop):
            if isinstance(message, Assign):
                self.prepare(message)
            self.followed.put(message)

    def next_work(self) -> Work:
        """The next decision of the leader, on every rank. A rank that follows waits until its own preparation
        is over before it joins the exchange."""
        if self.place.leads:
            work = super().next_work()
            if isinstance(work, Begin | GiveUp):
                self.assigned = work.assign
            if isinstance(work, OfTrial):
                self._together(partial(distribute, self.parallel, work))
            return work
        if self.assigned is None:
            job = self.followed.get()
            if not isinstance(job, Assign):
                assert isinstance(job, Work), job
                return job
            wait([self._starts[job.trial.number, job.attempt]])  # here, so that no stream of the device waits
            self.assigned = job
        return self._together(partial(follow, self.parallel, self.assigned))

    def _together(self, exchange: Callable[[], OfTrial]) -> OfTrial:
        """What the ranks of the group exchange. Raises GroupBroken."""
        try:
            return exchange()
        except Exception as error:  # of MPI, of a socket, of a device: whatever joins the group
            raise self._broken(error) from error

    def take(self, event: Event) -> None:
        """Only the leader conducts. A rank that follows says itself what it measured."""
        if self.place.leads:
            super().take(event)
        elif isinstance(event, Answered):
            for message in event.messages:
                if isinstance(message, Ceiling | Control | DeviceCheck):
                    self.send(message)

    def release(self, message: Release) -> None:
        """Uses the threads and step times of a rank that measured them before this process was started."""
        rank = str(self.place.rank)
        if threads := message.threads.get(rank):
            self.device.use_threads(threads)
        if timed := message.timed.get(rank):
            self.threads = replace(self.threads, timed=timed)

    def recorder(self, message: Observe) -> Recorder:
        """A recorder of all devices of this host, under the names that the journal uses for them."""
        named = {each: self.files.hidden("device", each) for each in message.devices.get(self.host, ())}
        watched = None
        if processes := message.processes.get(self.host, ()):
            watched = Watched(processes, cgroup.cores(), message.use_seconds, self._used)
        return Recorder(self.files.telemetry(self.host), self.device.sensors, named, watched)

    def _used(self, used: Mapping[str, float]) -> None:
        """Reports an interval of this host, in the thread that hears the recorder."""
        self.send(HostUse(self.place.rank, **used))

    def _ready(self, manifest: Mapping[str, Any], seconds: float) -> Ready:
        """What the rules ask of a rank, and what the data and the device are."""
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
            settings=self._settings(),
            data_note=self.rank.data.note,
            preparation=self.rank.data.preparation,
            wall_seconds=time.time(),  # at the moment of sending: to see the probe may take seconds
        )

    def _settings(self) -> dict[str, str]:
        """The settings of the environment and of the device; what is empty is left out of the journal."""
        own = {NOTE: self.device.note, NEAR: self.near}
        found = read_settings(os.environ) | self.device.traits
        return found | {name: text for name, text in own.items() if text}

    def measure_ceiling(self, seconds: float) -> Ceiling:
        """Measures network and engines first, then the ceilings with the number of threads that is best for
        them. Raises WorldError if the engine that the user has chosen cannot be used. `seconds` are for all
        of it; STEPS_SHARE of them is added for the engines."""
        training, device, timing = self.config.training, self.device, None
        work = RankWork(self.typical, training.format, training.batch_size // self.parallel.ranks)
        if training.step != EAGER:
            examples = max(training.epochs) * self.rank.data.train.num_examples
            steps, span = examples // training.batch_size, 60 * self.config.limits.minutes or math.inf
            timing = Timing(training, steps, span, self.parallel, STEPS_SHARE * seconds)
        share, rate = network_seconds(device, seconds), self.formats[training.format]
        network = measure_network(device, work, self.seed, rate, share, timing)
        found = network.steps.get(training.step)
        refuse_unusable(self.seed, device, training, self.parallel.ranks, found.why_not if found else "")
        self.threads = replace(self.threads, timed=network.timed)
        device.clean()
        measured = measure(device, work, self.parallel, self.place.rank, self.host, network, seconds)
        device.clean()
        return measured

    def measure_control(self, seconds: float) -> Control:
        """The last size that was timed is the control; the smaller ones before it are recorded with it."""
        *others, own = measure_control(
            task_of(self.config.data).control, self.device, self.config.training.format, seconds
        )
        return Control(
            rank=self.place.rank,
            host=self.host,
            device=self.device.name,
            **vars(own),
            examples_per_second=own.examples_per_second,
            others=tuple(others),
        )

    def check_device(self, seconds: float) -> DeviceCheck:
        """The bits that this device computes by a fixed network, to be compared with those of equal
        devices."""
        return check_device(self.device, self.config.training.format, self.place.rank, seconds)

    def enter_preparing(self) -> None:
        self.device.enter_thread()

    def start_of(self, assign: Assign) -> BuiltTrial:
        """Prepares on a queue of its own, and waits here for its end: no step of the trial before waits, and
        any queue may use the results. Raises what `build` raises, for memory or files of the parent that are
        missing."""
        queue = self.device.aside(PREPARING)
        with queue.begin():
            built = build(self.rank, assign.trial, assign.attempt, self._start_of(assign.trial))
        queue.finish()
        return built

    def built(self, start: BuiltTrial) -> Built:
        return Built(start.network.graph, start.plan)

    def _start_of(self, trial: Trial) -> Kept:
        """The child's network, with the weights and optimizer state that its parent's become. Morphisms are
        applied one after the other, as the lineage has them."""
        seed = Kept(self.seed, self.seed_weights, {})
        kept = seed if trial.parent is None else self.kept(trial.parent)
        for morphism in trial.morphisms:
            kept = kept.grown(morphism)
        return kept

    def give_up(self, work: GiveUp) -> None:
        super().give_up(work)
        self.assigned = None

    def save(self, path: Path, kept: Kept) -> str:
        return write_kept(path, kept)

    def read(self, path: Path) -> Kept:
        return read_kept(path)

    def do(self, work: OfTrial) -> Answer | None:
        """Raises GroupBroken when ranks of the group wait for each other in vain."""
        if isinstance(work, Close):
            self._close(work)
            return None
        try:
            return self._begin(work) if isinstance(work, Begin) else self._running.do(work)
        except Elsewhere as error:
            log.info("%s failed on another rank", error)
            failed = Failed(here=False)
        except Here as error:
            failed = self._failed(error.__cause__ or error)
        except NotFinite as error:  # of the whole group, and its leader reports it
            failed = self._failed(error) if self.place.leads else Failed(here=False)
        except Exception as error:  # a trial is foreign code: its errors end it alone, and are reported
            if self.parallel.ranks > 1:
                raise self._broken(error) from error
            failed = self._failed(error)
        # Told first: after some errors of a device nothing more can be done on it, not even to clean it.
        self.take(failed) if self.place.leads else self._report(failed)
        self._leave()
        self.device.clean()
        return None

    def _begin(self, begin: Begin) -> Begun:
        """Raises Here, or Elsewhere, when the preparation failed."""
        start = self.start(begin.assign)
        failure = start.exception()
        if agree(self.parallel, failure is not None):
            reason = f"trial {begin.assign.trial.number}: building"
            raise (Here if failure else Elsewhere)(reason) from failure
        attempt, training = start.result(), self.config.training
        self.device.aside(PREPARING).join(*attempt.tensors)
        graph, ranks = attempt.network.graph, self.parallel.ranks
        refused = why_not(begin.engine, graph, self.device, training, ranks)
        if agree(self.parallel, bool(refused)):
            refused = refused or ELSEWHERE
        attempt.engine_name, reason = (EAGER, refused) if refused else (begin.engine, begin.reason)
        threads = self._use_threads(attempt)
        self.trained = TrainedTrial(self.rank, attempt, self._happened)
        return Begun(attempt.engine_name, reason, threads)

    def _use_threads(self, attempt: BuiltTrial) -> tuple[int, ...]:
        """Uses the number of threads that is best for the steps of a trial; returns that of each rank of the
        group, or nothing if the devices are not CPUs."""
        size = self.sizes.of(attempt.network.graph, attempt.trial.hyper.batch_size)
        if count := self.threads.count(attempt.engine_name, size):
            self.device.use_threads(count)
        if self.device.kind != "cpu":
            return ()
        return tuple(count for (count,) in everyone(self.parallel, self.device.threads))

    @property
    def _running(self) -> TrainedTrial:
        """The trial that this rank has begun."""
        assert self.trained
        return self.trained

    def _close(self, close: Close) -> None:
        """Ends a trial: the leader writes what was kept, and every rank remembers it for a child."""
        trial, kept, failed = close.trial, None, None
        try:
            kept = self._running.kept()
        except Exception as error:  # the trial's, as while it runs: it is over, so nothing is kept
            failed = self._failed(error)
        if failed is not None:
            self.take(WeightsWritten(trial, close.attempt, failed=failed))
            self._leave()
            self.device.clean()
            return
        if self.place.leads:
            self.write(close, kept)
        elif kept is not None:
            self.last = trial, kept
        self._leave()

    def _leave(self) -> None:
        """Frees what the trial used."""
        if self.trained:
            self.trained.close()
        self.trained, self.assigned = None, None

    def _happened(self, event: EngineFailed | Working) -> None:
        """Reports what happens in the middle of a work of a trial."""
        if isinstance(event, EngineFailed):
            self.take(event)
        elif self.place.leads:
            self.send(event)

    def _failed(self, error: BaseException) -> Failed:
        """The event of an error, with its traceback in the log of this rank."""
        failed = self.failed(error, is_out_of_memory(error))
        log.error("%s failed\n%s", self._name, failed.traceback)
        return failed

    def _broken(self, error: Exception) -> GroupBroken:
        """The end of a group of several after an error in the middle of a work, which is reported where it
        is this rank's own: the others wait in a collective that will never end, and must be started again."""
        if not self.parallel.is_of_another(error):
            self._report(self._failed(error))
        return GroupBroken(f"{self._name} broke the group: {type(error).__name__}: {error}")

    def _report(self, failed: Failed) -> None:
        """Sends a failure of this rank itself, where no conduct will."""
        if failed.here and self.assigned:
            self.send(failure(self.assigned, failed))

    @property
    def _name(self) -> str:
        """The trial as a log and an error name it."""
        assert self.assigned
        return f"trial {self.assigned.trial.number}"

    def evaluate(self, trial: int) -> Evaluated:
        """Tests the best network. Raises DataError if its answers are not finite numbers."""
        kept = self.kept(trial)
        network = placed(kept.graph, kept.weights, self.device)
        try:
            top5 = Top5(network, self.device.torch)
            tally, seconds = evaluate(self.rank, network, self.rank.data.test, look=top5.look)
        except NotFinite as error:  # on every rank of every group alike
            raise DataError(f"trial {trial}, the best, has no result on the test part: {error}") from None
        return Evaluated(trial, tally, seconds, top5.total(self.rank))
