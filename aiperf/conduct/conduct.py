"""The life of a group, as its leader conducts it: messages in their order, trials one after the other."""

from __future__ import annotations

from collections import deque

from aiperf.conduct.actions import Action, Begin, Close, GiveUp, Prepare, Say
from aiperf.conduct.course import Course
from aiperf.conduct.events import (
    Answered,
    Begun,
    BlockDone,
    EngineFailed,
    Event,
    Failed,
    Prepared,
    ValidationDone,
    WeightsWritten,
)
from aiperf.config import EAGER
from aiperf.proposing.engine_choice import Engines
from aiperf.proposing.pace import Pace
from aiperf.wire.messages import (
    Assign,
    CheckDevice,
    Evaluate,
    MeasureCeiling,
    MeasureControl,
    NextWanted,
    Observe,
    Quit,
    Release,
    Stop,
    ToGroup,
)
from aiperf.wire.reports import Ceiling, Fallback, Finished, Started
from aiperf.wire.trial import State

Answerable = MeasureCeiling | MeasureControl | CheckDevice | Evaluate
"""Messages that are work of the group as a whole, which ends with `Answered`."""
LEAD = 2.0
"""A group wants its next trial when this multiple of the time is left that the last one took to arrive and
to be prepared. What is proposed later follows from more results; what is prepared too late leaves devices
idle."""
Attempt = tuple[int, int]
"""The numbers of a trial and of its attempt."""


class Conduct:
    """A pure machine: it knows no thread, no clock and no device, so a test can say what happens when.

    A driver carries out what `take` returns and takes what comes of it. It has one work at a time: after an
    action that is answered, the next work comes with the answer. Preparing, writing and talking go on beside
    it. A driver with several threads calls `take` under a lock.
    """

    def __init__(self, engines: Engines | None = None) -> None:
        """Without `engines` all steps are eager."""
        self.pace = Pace()
        self._engines = engines
        self._jobs = deque[ToGroup]()
        """Messages that are work, in the order in which they came."""
        self._taken_up = False
        """Whether the first of the jobs is a trial that waits for nothing but its preparation."""
        self._busy = False
        """Whether a work is being done that will be answered."""
        self._assigned: dict[Attempt, float] = {}
        """When a trial was assigned that is not taken up yet."""
        self._prepared: dict[Attempt, Prepared] = {}
        """Trials that wait for their turn."""
        self._wanted_since: float | None = None
        """Since when the group wants a trial that is not prepared yet."""
        self._wait_seconds: float | None = None
        """Time in seconds from the moment when the group wanted its last trial until that one was prepared.
        None while a group trains its first trial: it does not want the next one yet, because when a run
        begins every trial would start from the seed's initial weights."""
        self._running: tuple[Assign, Prepared, float] | None = None
        """The trial that is being trained, and when it was assigned."""
        self._course: Course | None = None
        self._closed: dict[Attempt, tuple[Assign, Close, float]] = {}
        """Trials that are being written, and when they ended."""

    def take(self, event: Event, now: float) -> list[Action]:
        """What is to be done about an event at the time `now`, in seconds on the driver's clock."""
        if isinstance(event, ToGroup):
            return self._hear(event, now)
        if isinstance(event, Prepared):
            if (event.trial, event.attempt) in self._assigned:
                self._prepared[event.trial, event.attempt] = event
                if self._wanted_since is not None:
                    self._wait_seconds, self._wanted_since = now - self._wanted_since, None
            return self._turn(now)
        if isinstance(event, WeightsWritten):
            return [self._finished(event)]
        if isinstance(event, Answered):
            return self._answered(event, now)
        return self._of_trial(event, now)

    def _hear(self, message: ToGroup, now: float) -> list[Action]:
        """A message of the master. Work waits in the order of the messages; a stop counts at once, and so
        does the release, because the deadline holds for what is running too."""
        if isinstance(message, Stop):
            self.pace.halted = True
            return []
        if isinstance(message, Observe):
            return [message]
        if isinstance(message, Release):
            self.pace.release(now, message.seconds_left, message.block_seconds)
        self._jobs.append(message)
        if not isinstance(message, Assign):
            return self._turn(now)
        key = message.trial.number, message.attempt
        self._assigned[key] = now
        actions = self._turn(now)
        # After a stop its turn comes at once, and it is given up: then nothing is left to prepare.
        return [Prepare(message), *actions] if key in self._assigned else actions

    def _turn(self, now: float) -> list[Action]:
        """Takes up jobs in their order, as far as nothing is waited for."""
        actions = list[Action]()
        while self._jobs and not self._busy:
            job = self._jobs[0]
            if isinstance(job, Assign):
                key = job.trial.number, job.attempt
                if not self._taken_up and self.pace.must_close(now):
                    del self._assigned[key]
                    self._prepared.pop(key, None)
                    actions += [GiveUp(job), Say(Finished(*key, State.WAITING, "never began"))]
                    self._jobs.popleft()
                    continue
                self._taken_up = key not in self._prepared
                if self._taken_up:
                    break
                actions.append(self._begin(job, now))
            elif isinstance(job, Release | Quit | Answerable):
                if isinstance(job, Release) and job.steps and self._engines:
                    self._engines.times, self._engines.seed_times = job.steps, job.seed_steps
                self._busy = isinstance(job, Answerable)
                actions.append(job)
            self._jobs.popleft()
        return actions

    def _begin(self, job: Assign, now: float) -> Begin:
        """Takes up a prepared trial, with the engine that is expected to be the fastest for it. A trial whose
        preparation failed begins, too: only the driver knows the error, and all ranks must agree on it."""
        key = job.trial.number, job.attempt
        prepared = self._prepared.pop(key)
        self._running, self._busy = (job, prepared, self._assigned.pop(key)), True
        engine, reason = EAGER, ""
        if self._engines and prepared.built:
            batch_size = job.trial.hyper.batch_size
            engine, reason = self._engines.choose(
                prepared.built.graph, prepared.built.plan.steps, batch_size, self.pace.seconds_left(now)
            )
        return Begin(job, engine, reason)

    def _of_trial(
        self, event: Begun | EngineFailed | BlockDone | ValidationDone | Failed, now: float
    ) -> list[Action]:
        """What follows from an event of the trial that is being trained."""
        assert self._running, event
        assign, prepared, assigned = self._running
        number, attempt = assign.trial.number, assign.attempt
        if isinstance(event, Failed):
            told = [Say(failure(assign, event))] if event.here else []
            return [*told, *self._over(now)]
        if isinstance(event, EngineFailed):
            return [Say(Fallback(number, attempt, event.engine, event.reason))]
        if isinstance(event, Begun):
            assert prepared.built, event
            started = Started(
                number,
                attempt,
                prepared.built.graph.key,
                now - assigned,
                event.engine,
                event.reason,
                event.threads,
            )
            self._course = Course(number, attempt, prepared.built, self.pace)
            return [Say(started), self._course.first()]
        assert self._course, event
        actions = list(self._course.take(event, now))
        work = actions[-1]
        # The next job begins here, not once the weights are written: both go on side by side.
        if isinstance(work, Close):
            self._closed[number, attempt] = assign, work, event.ended
            actions += self._over(now)
        elif self._wants_next(self._course.left_after(work), now):
            self._wanted_since = now
            actions.insert(-1, Say(NextWanted(number, attempt)))
        return actions

    def _wants_next(self, left: float, now: float) -> bool:
        """Whether to ask for the next trial at this moment: `left` is the time in seconds that this one takes
        after the work that comes next. One that will hardly end before the deadline has no next."""
        if self._wait_seconds is None or self._wanted_since is not None or self._assigned:
            return False
        return left <= LEAD * self._wait_seconds and left < self.pace.seconds_left(now)

    def _over(self, now: float) -> list[Action]:
        """The trial ended, and the next job is taken up."""
        self._running, self._course, self._busy = None, None, False
        if self._wanted_since is None and not self._assigned:
            self._wanted_since = now
        return self._turn(now)

    def _finished(self, written: WeightsWritten) -> Say:
        """Said once the weights are on disk: a finished trial can be a parent at once."""
        key = written.trial, written.attempt
        assign, closed, ended = self._closed.pop(key)
        if written.failed:
            return Say(failure(assign, written.failed), since=ended)
        finished = Finished(*key, closed.state, closed.reason, weights=written.weights, kept=closed.kept)
        return Say(finished, since=ended)

    def _answered(self, answer: Answered, now: float) -> list[Action]:
        """The result of a measurement or an evaluation, which ends it. The step times of the ceiling choose
        the engines of all later trials."""
        for message in answer.messages:
            if isinstance(message, Ceiling) and self._engines:
                self._engines.times, self._engines.seed_times = message.steps, message.seed_steps
        self._busy = False
        return [*map(Say, answer.messages), *self._turn(now)]


def failure(assign: Assign, failed: Failed) -> Finished:
    """The message to the master about a trial that failed on the rank that reports."""
    return Finished(
        trial=assign.trial.number,
        attempt=assign.attempt,
        state=State.FAILED,
        reason=failed.reason,
        out_of_memory=failed.out_of_memory,
        traceback=failed.traceback,
    )
