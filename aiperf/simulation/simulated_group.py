"""A simulated group: the driver of the conduct on a virtual clock.

Where a real group has a thread that prepares and one that writes, this one has a process of SimPy: a
generator that yields for as long as the work takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

import simpy

from aiperf.conduct.actions import Action, Begin, Close, GiveUp, Keep, Prepare, Say, Train, Validate
from aiperf.conduct.conduct import Attempt, Conduct
from aiperf.conduct.events import (
    Answered,
    Begun,
    BlockDone,
    Event,
    Failed,
    Prepared,
    ValidationDone,
    WeightsWritten,
)
from aiperf.pretending.assumptions import Assumptions
from aiperf.pretending.group_model import Learnt, Pretended, PretendedTrial
from aiperf.pretending.rank_report import pretended_ceiling, pretended_control, pretended_ready
from aiperf.proposing.pace import WORKING_SECONDS
from aiperf.simulation.data_on_nodes import DataOnNodes
from aiperf.simulation.simulated_machine import SharedStorage, start_seconds
from aiperf.wire.layout import Place
from aiperf.wire.messages import (
    Assign,
    Evaluate,
    MeasureCeiling,
    Observe,
    Quit,
    Release,
    Setup,
    ToGroup,
    Working,
)
from aiperf.wire.reports import Evaluated, FromGroup
from nas.frozen import frozen

FIRST_PID = 1000
"""Process number before that of rank 1. A journal has process numbers; those of a simulation mean nothing."""


Process = Generator[simpy.Event, Any, None]
"""A process of SimPy: it yields events, and goes on when they have happened."""


@frozen
class Surroundings:
    """What all groups of a simulation share."""

    env: simpy.Environment
    assumptions: Assumptions
    storage: SharedStorage
    data: DataOnNodes
    group: Callable[[Setup, Sequence[Place], float], Pretended]
    """What a group of these ranks does, at this speed: how long its work takes and what comes of it."""
    say: Callable[[int, FromGroup], None]
    """Sends a message of the group with that number to the master."""
    hosts: tuple[str, ...]
    """Host of every rank, the master's first."""
    code_hash: str
    wall_seconds: float
    """Unix time in seconds when the clock of the simulation was 0."""


class SimulatedGroup:
    """One group from Setup to Quit, unless it is stopped before."""

    def __init__(self, around: Surroundings, index: int, places: tuple[Place, ...], speed: float) -> None:
        """`speed` is that of its slowest device, relative to a usual one."""
        self.around, self.index, self.places, self.speed = around, index, places, speed
        self.incarnation = 0
        """Number of its starts. Messages of an earlier start are dropped."""
        self._alive: list[simpy.Process] = []
        self.start()

    def start(self) -> None:
        """Starts the group anew, in whatever state it is; it waits for the master's first message."""
        self.stop()
        self.incarnation += 1
        self._conduct, self._began = Conduct(), self.around.env.now
        self._last: tuple[int, Learnt] | None = None
        """The trial whose network this group still has in memory, as its parent needs not be read."""
        self._prepared = self.around.env.event().succeed()
        """The end of the last preparation so far: trials are prepared one after the other."""
        self._starts: dict[Attempt, PretendedTrial] = {}
        self._trial: PretendedTrial | None = None

    def stop(self) -> None:
        """Interrupts all that it does; it sends nothing more. A process that has ended cannot be
        interrupted."""
        for process in self._alive:
            if process.is_alive:
                process.interrupt()
        self._alive = []

    def hear(self, message: ToGroup) -> None:
        """Handles a message of the master, at the time of its arrival."""
        if isinstance(message, Setup):
            self._run(self._initialise(message))
        else:
            self._take(message)

    def _take(self, event: Event) -> None:
        """Gives an event to the conduct, and carries out what it decides: some at once, work as a process."""
        for action in self._conduct.take(event, self.around.env.now):
            if isinstance(action, Say):
                self._say(action.aged(self.around.env.now))
            elif isinstance(action, Prepare):
                self._prepared, before = self.around.env.event(), self._prepared
                self._run(self._prepare(action.assign, before, self._prepared))
            elif isinstance(action, Keep):
                self._running.keep(action)
            elif isinstance(action, Close):
                self._run(self._write(action, self._running.kept))
            elif not isinstance(action, Observe | Release | Quit | GiveUp):
                self._run(self._work(action))

    def _run(self, course: Process) -> None:
        """Starts a process that `stop` can interrupt."""
        self._alive = [process for process in self._alive if process.is_alive]
        self._alive.append(self.around.env.process(_until_interrupted(course)))

    def _say(self, message: FromGroup) -> None:
        """Sends a message to the master."""
        self.around.say(self.index, message)

    @property
    def _running(self) -> PretendedTrial:
        """The trial that the group has begun."""
        assert self._trial
        return self._trial

    def _initialise(self, setup: Setup) -> Process:
        """Waits until the ranks are ready, and reports them. All ranks of the machine start together; after a
        loss only those of this group do."""
        env, ranks = self.around.env, len(self.around.hosts) - 1
        assumptions = self.around.assumptions
        self._pretended = own = self.around.group(setup, self.places, self.speed)
        examples = own.manifest["training_examples"]
        self._reading = self.around.data.reading(self.places, own.config.data, examples)
        first = self.incarnation == 1
        num, last = (ranks, self.places[-1].rank) if first else (len(self.places), len(self.places))
        yield env.timeout(start_seconds(assumptions.startup, num, last))
        self._pretended = replace(own, ready=env.now)
        for each in self.places:
            host = self._host(each)
            self._say(
                pretended_ready(
                    self._pretended,
                    rank=each.rank,
                    host=host,
                    pid=FIRST_PID + each.rank,
                    code_hash=self.around.code_hash,
                    sees_run=True,
                    seconds=env.now - self._began,
                    wall_seconds=self.around.wall_seconds + env.now,
                    device_id=f"{host}:{each.device_index}",
                    visible_devices=each.ranks_on_host,
                )
            )

    def _prepare(self, assign: Assign, before: simpy.Event, over: simpy.Event) -> Process:
        """Prepares a trial. The parent's weights are read, unless this group trained the parent last and
        still has them in memory."""
        env, trial = self.around.env, assign.trial
        yield before
        if trial.parent is None:
            parent: Learnt | None = self._pretended.untrained
        elif self._last is not None and self._last[0] == trial.parent:
            parent = self._last[1]
        else:
            parent = yield from self.around.storage.read(trial.parent, self._pretended.config.training)
        yield env.timeout(self.around.assumptions.trials.prepare_seconds)
        over.succeed()
        built = None
        if parent is not None:
            learnt = parent.child(trial, self.around.assumptions.spread)
            start = self._pretended.begun(trial, assign.attempt, learnt)
            self._starts[start.number] = start
            built = start.built
            if self._reading.goes_on:  # then blocks are as long as the last step was, as where nobody knows
                built = replace(built, step_seconds=math.inf)
        self._take(Prepared(trial.number, assign.attempt, built))

    def _work(self, work: Action) -> Process:
        """Waits as long as the work takes, and answers it."""
        env, assumed = self.around.env, self.around.assumptions
        answer: Event
        if isinstance(work, Train):
            computing = self._running.train_seconds(work.steps, env.now)
            seconds = yield from self._train(computing, work.steps)
            answer = self._result(lambda: self._running.trained(work, seconds, env.now))
        elif isinstance(work, Validate):
            seconds = self._running.validate_seconds(env.now)
            yield from self._wait(seconds)
            answer = self._result(lambda: self._running.validated(work, seconds, env.now))
        elif isinstance(work, Begin):
            answer = yield from self._begin(work.assign)
        elif isinstance(work, Evaluate):
            answer = yield from self._evaluate(work.trial)
        else:
            yield env.timeout(assumed.startup.measuring_seconds / 2)
            measured = pretended_ceiling if isinstance(work, MeasureCeiling) else pretended_control
            own = (measured(self._pretended, place.rank, self._host(place)) for place in self.places)
            answer = Answered(tuple(own))
        self._take(answer)

    def _train(self, seconds: float, steps: int) -> Generator[simpy.Event, Any, float]:
        """Waits for a block of steps that computes for this long, and for the images that are read meanwhile.
        Returns how long it took."""
        env, running = self.around.env, self._running
        amounts = self._reading.next(steps * running.batch_size)
        if not any(amounts):
            yield env.timeout(seconds)
            return seconds
        began, storage = env.now, self.around.storage
        yield env.all_of([env.timeout(seconds), *(storage.transfer(each) for each in amounts if each)])
        self.around.data.waited(env.now - began - seconds, sum(amounts))
        return float(env.now - began)

    def _result(self, work: Callable[[], BlockDone | ValidationDone]) -> BlockDone | ValidationDone | Failed:
        """What a work comes to. Where networks are really trained, a loss may be no finite number, which ends
        the trial as it does on a worker."""
        try:
            return work()
        except ArithmeticError as error:
            place = self.places[0]
            return Failed(reason=f"rank {place.rank} on {self._host(place)}: {type(error).__name__}: {error}")

    def _begin(self, assign: Assign) -> Generator[simpy.Event, Any, Begun | Failed]:
        """Begins a trial that is prepared; it fails if its parent's weights were not there."""
        number = assign.trial.number, assign.attempt
        if number not in self._starts:
            return Failed(reason=f"the weights of trial {assign.trial.parent} are not kept")
        yield self.around.env.timeout(self.around.assumptions.trials.gap_seconds)
        self._trial = self._starts.pop(number)
        self._reading.begin()
        return Begun(self._pretended.engine)

    def _wait(self, seconds: float) -> Process:
        """Waits, and reports from time to time that a long validation is in progress."""
        env = self.around.env
        while seconds > WORKING_SECONDS:
            yield env.timeout(WORKING_SECONDS)
            seconds -= WORKING_SECONDS
            self._say(Working())
        yield env.timeout(seconds)

    def _write(self, close: Close, kept: Learnt | None) -> Process:
        """Writes the kept weights while the next trial trains."""
        if kept is not None:
            yield from self.around.storage.write(close.trial, kept, self._pretended.config.training)
            # Only when it is written, as on a real group, whose driver sets it after the file.
            self._last = (close.trial, kept)
        self._take(WeightsWritten(close.trial, close.attempt))

    def _evaluate(self, trial: int) -> Generator[simpy.Event, Any, Answered]:
        """Tests a trial's kept network."""
        learnt = yield from self.around.storage.read(trial, self._pretended.config.training)
        if learnt is None:  # silence, as of a rank that dies of a file that is gone
            return Answered(())
        of = self._pretended.manifest["test_examples"]
        seconds = self._pretended.validate_seconds(learnt, of) * self._pretended.longer(self.around.env.now)
        yield self.around.env.timeout(seconds)
        return Answered((Evaluated(trial, self._pretended.tested(learnt), seconds),))

    def _host(self, place: Place) -> str:
        """The host of a rank of this group."""
        return self.around.hosts[place.rank]


def _until_interrupted(course: Process) -> Process:
    """A process that ends without an error when it is interrupted."""
    try:
        yield from course
    except simpy.Interrupt:
        return
