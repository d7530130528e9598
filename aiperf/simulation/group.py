"""A simulated group: it answers the master as `aiperf.training.worker` does, at the times that are assumed.

Where a real group has a thread that prepares and one that writes, this one has a process of the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import simpy

from aiperf.pretending.assumptions import Assumptions
from aiperf.pretending.course import CourseEnd, Learnt, Pretended, Wait
from aiperf.pretending.rank import (
    pretended_ceiling,
    pretended_control,
    pretended_manifest,
    pretended_ready,
)
from aiperf.proposing.pace import WORKING_SECONDS, Pace
from aiperf.simulation.machine import start_seconds
from aiperf.simulation.storage import SharedStorage
from aiperf.trial import State
from aiperf.wire.layout import Place
from aiperf.wire.messages import (
    Assign,
    Evaluate,
    Evaluated,
    Finished,
    FromGroup,
    MeasureCeiling,
    MeasureControl,
    Quit,
    Release,
    Setup,
    Stop,
    ToGroup,
    Working,
)

FIRST_PID = 1000
"""Before that of rank 1: a journal has the numbers of processes, and those of a simulation mean nothing."""


Course = Generator[simpy.Event, Any, None]


@dataclass(frozen=True)
class Surroundings:
    """What all groups share."""

    env: simpy.Environment
    assumptions: Assumptions
    storage: SharedStorage
    seed: Callable[[Setup], Learnt]
    say: Callable[[int, FromGroup], None]
    """The group's word on its way to the master."""
    hosts: tuple[str, ...]
    """Of every rank, the master's first."""
    code_hash: str
    wall_seconds: float
    """The time of day when the clock of the simulation was 0."""


@dataclass(frozen=True)
class Prepared:
    """A trial on its way."""

    assign: Assign
    start: simpy.Event
    """Its value is what the trial starts from, its parent's; None where that could not be read."""
    asked: float


class SimulatedGroup:
    """From Setup to Quit, unless it is stopped before."""

    def __init__(self, around: Surroundings, index: int, places: tuple[Place, ...], speed: float) -> None:
        self.around, self.index, self.places, self.speed = around, index, places, speed
        self.incarnation = 0
        """Counts its starts; what an earlier one said is not heard."""
        self._alive: list[simpy.Process] = []
        self.start()

    def start(self) -> None:
        """It waits for the master's first message."""
        self.stop()
        self.incarnation += 1
        env = self.around.env
        self._work = simpy.Store(env)
        self._halted = False
        self._last: tuple[int, Learnt] | None = None
        self._prepared = env.event().succeed()
        self._pace = Pace(lambda: self._halted, lambda: float(env.now))
        self._run(self._life())

    def stop(self) -> None:
        """Whatever it does ends here, and it says nothing more."""
        for process in self._alive:
            if process.is_alive:
                process.interrupt()
        self._alive = []

    def hear(self, message: ToGroup) -> None:
        """What `Worker._listen` does."""
        env = self.around.env
        if isinstance(message, Assign):
            job = Prepared(message, env.event(), env.now)
            self._run(self._prepare(job, self._prepared))
            self._prepared = job.start
            self._work.put(job)
        elif isinstance(message, Stop):
            self._halted = True
        else:
            if isinstance(message, Release):
                self._pace.release(message.seconds_left, message.block_seconds)
            self._work.put(message)

    def _run(self, course: Course) -> None:
        self._alive = [process for process in self._alive if process.is_alive]
        self._alive.append(self.around.env.process(_until_interrupted(course)))

    def _say(self, message: FromGroup) -> None:
        self.around.say(self.index, message)

    def _life(self) -> Course:
        """What `Worker.serve` does."""
        env, assumed = self.around.env, self.around.assumptions
        yield from self._initialise()
        half = assumed.startup.measuring_seconds / 2
        while not isinstance(job := (yield self._work.get()), Quit):
            if isinstance(job, MeasureCeiling):
                yield env.timeout(half)
                for place in self.places:
                    self._say(pretended_ceiling(self._pretended, place.rank, self._host(place)))
            elif isinstance(job, MeasureControl):
                yield env.timeout(half)
                for place in self.places:
                    self._say(pretended_control(self._pretended, place.rank, self._host(place)))
            elif isinstance(job, Evaluate):
                yield from self._evaluate(job.trial)
            elif isinstance(job, Prepared) and self._pace.must_close():
                assign = job.assign
                self._say(Finished(assign.trial.number, assign.attempt, State.WAITING, "never began"))
            elif isinstance(job, Prepared):
                yield from self._attempt(job)

    def _initialise(self) -> Course:
        env, ranks = self.around.env, len(self.around.hosts) - 1
        began, setup = env.now, (yield self._work.get())
        assert isinstance(setup, Setup), setup
        config, seed = setup.config, self.around.seed(setup)
        manifest = pretended_manifest(config)
        self._pretended = Pretended(
            self.around.assumptions, config, seed.graph, manifest, len(self.places), self.speed
        )
        self._seed = seed
        first = self.incarnation == 1
        num, last = (ranks, self.places[-1].rank) if first else (len(self.places), len(self.places))
        yield env.timeout(start_seconds(self.around.assumptions.startup, num, last))
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
                    seconds=env.now - began,
                    wall_seconds=self.around.wall_seconds + env.now,
                    device_id=f"{host}:{each.device_index}",
                    visible_devices=each.ranks_on_host,
                )
            )

    def _prepare(self, job: Prepared, before: simpy.Event) -> Course:
        """One at a time: the parent's weights from memory where this group trained it last, else read."""
        env, trial = self.around.env, job.assign.trial
        yield before
        if trial.parent is None:
            start: Learnt | None = self._seed
        elif self._last is not None and self._last[0] == trial.parent:
            start = self._last[1]
        else:
            start = yield from self.around.storage.read(trial.parent, self._pretended.config.training)
        yield env.timeout(self.around.assumptions.trials.prepare_seconds)
        job.start.succeed(start)

    def _attempt(self, job: Prepared) -> Course:
        env, trial, attempt = self.around.env, job.assign.trial, job.assign.attempt
        parent = yield job.start
        if parent is None:
            reason = f"the weights of trial {trial.parent} are not kept"
            self._say(Finished(trial.number, attempt, State.FAILED, reason))
            return
        yield env.timeout(self.around.assumptions.trials.gap_seconds)
        prepare_seconds = env.now - job.asked
        start = parent.child(trial, self.around.assumptions.spread)
        course = self._pretended.course(trial, attempt, start, self._pace, prepare_seconds)
        while True:
            try:
                said = next(course)
            except StopIteration as stopped:
                self._run(self._finish(trial.number, attempt, stopped.value, env.now))
                return
            if isinstance(said, Wait):
                yield from self._wait(said)
            else:
                self._say(said)

    def _wait(self, wait: Wait) -> Course:
        """In a long validation it is said now and then that it goes on."""
        env, left = self.around.env, wait.seconds
        while wait.validates and left > WORKING_SECONDS:
            yield env.timeout(WORKING_SECONDS)
            left -= WORKING_SECONDS
            self._say(Working())
        yield env.timeout(left)

    def _finish(self, trial: int, attempt: int, end: CourseEnd, ended: float) -> Course:
        """The weights are written, then it is said: a finished trial can be a parent at once."""
        if end.kept is not None:
            yield from self.around.storage.write(trial, end.kept, self._pretended.config.training)
            self._last = (trial, end.kept)
        age = self.around.env.now - ended
        self._say(Finished(trial, attempt, end.state, end.reason, age_seconds=age, kept=end.segment))

    def _evaluate(self, trial: int) -> Course:
        learnt = yield from self.around.storage.read(trial, self._pretended.config.training)
        if learnt is None:  # silence, as of a rank that dies of a file that is gone
            return
        of = self._pretended.manifest["test_examples"]
        seconds = self._pretended.validate_seconds(learnt, of)
        yield self.around.env.timeout(seconds)
        self._say(Evaluated(trial, self._pretended.tally(learnt, of), seconds))

    def _host(self, place: Place) -> str:
        return self.around.hosts[place.rank]


def _until_interrupted(course: Course) -> Course:
    try:
        yield from course
    except simpy.Interrupt:
        return
