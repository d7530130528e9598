"""The course of one trial: which block of steps, validation or end comes next, and what the master hears."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from aiperf.clock import moment
from aiperf.conduct.actions import Action, Close, Keep, Say, Train, Validate
from aiperf.conduct.events import BlockDone, Built, ValidationDone
from aiperf.proposing.pace import CLOSE_NOW, VALIDATE_NOW, Pace
from aiperf.wire.messages import Steps, Validated
from aiperf.wire.reports import NOTHING_KEPT
from aiperf.wire.trial import Segment, State, StepBlock
from nas.ops import OPS

ENDED = "the run ended"
"""Reason of trials that the deadline or a stop ends."""


class Course:
    """From the first step of an attempt to its end.

    A segment is a number of blocks and the validation that closes it. What is not validated earns nothing, so
    a trial that must stop validates once more; one that trained nothing since its last validation just ends.
    """

    def __init__(self, trial: int, attempt: int, built: Built, pace: Pace) -> None:
        self._built, self._plan, self._pace = built, built.plan, pace
        self._trial, self._attempt = trial, attempt
        pace.operations = built.graph.cost.evaluate.price(OPS)
        self._close = partial(Close, trial, attempt)
        self._index = 0
        self._done = 0
        """Steps in closed segments."""
        self._halted = False
        self._best, self._since_best, self._kept = math.inf, 0, NOTHING_KEPT
        self._step_seconds = built.step_seconds
        self._open_segment()

    def first(self) -> Train:
        """The first step stands by itself: it may be slow or fail, and tells how long a step takes."""
        return Train(0, 1, None)

    def take(self, event: BlockDone | ValidationDone, now: float) -> Iterator[Action]:
        """What follows from an event. The last action is the next work, decided by the time `now`, and only
        when it is asked for: a pace may look at what was said before."""
        return self._block(event, now) if isinstance(event, BlockDone) else self._validation(event, now)

    def left_after(self, work: Action) -> float:
        """Expected time in seconds from the end of this work, which is the next, to that of the plan."""
        steps = self._plan.steps - self._done - self._steps
        validations = math.ceil((self._plan.steps - self._done) / self._plan.segment_steps)
        if isinstance(work, Train):
            steps -= work.steps
        else:
            validations -= 1
        return steps * self._step_seconds + validations * self._pace.validate_seconds

    def _open_segment(self) -> None:
        self._steps, self._examples, self._seconds = 0, 0, 0.0
        # A model's step is as long in each segment; of a real one, the last that was measured counts.
        if math.isfinite(self._built.step_seconds):
            self._step_seconds = self._built.step_seconds

    def _block(self, done: BlockDone, now: float) -> Iterator[Action]:
        """Adds up a block of the open segment, reports it, and decides what is next."""
        self._steps += done.steps
        self._examples += done.examples
        self._seconds += done.seconds
        self._step_seconds = done.seconds / done.steps
        block = StepBlock(
            self._trial, self._attempt, self._index, done.steps, done.examples, done.seconds, done.loss
        )
        yield Say(Steps(block, 0.0), since=done.ended)
        yield self._next(now)

    def _next(self, now: float) -> Action:
        """The next work within a segment: more steps, or the validation that closes it."""
        made = self._done + self._steps
        left = min(self._done + self._plan.segment_steps, self._plan.steps) - made
        if not left:
            return Validate(self._index)
        steps = self._pace.steps_of_block(now, self._step_seconds, self._seconds, left)
        if steps not in (CLOSE_NOW, VALIDATE_NOW):
            return Train(self._index, steps, self._end(now, made))
        self._halted = steps == CLOSE_NOW
        if self._halted and not self._steps:
            return self._close(State.STOPPED, ENDED, self._kept)
        return Validate(self._index)

    def _end(self, now: float, made: int) -> int:
        """The step at which the trial will end, its validations included: the plan's last, or one before."""
        steps = self._plan.steps
        # Over a segment and not its last block, so that one slow block does not end the learning rate early.
        seconds = self._seconds / self._steps if self._steps else self._step_seconds
        seconds += self._pace.validate_seconds / self._plan.segment_steps
        # At least one step is made, however little time is left.
        return min(steps, made + 1 + int(min(self._pace.steps_left(now, seconds), steps)))

    def _validation(self, done: ValidationDone, now: float) -> Iterator[Action]:
        """Closes the segment. The network is kept before the result is said, so that a trial that the master
        knows to be better always has its weights."""
        self._pace.validated(done.seconds)
        segment = self._closed(done)
        in_time = done.ended <= self._pace.deadline
        if segment.unbounded < self._best and in_time:  # what came too late chooses nothing
            self._best, self._since_best, self._kept = segment.unbounded, 0, self._index
            yield Keep(self._index)
        else:
            self._since_best += 1
        self._done += self._steps
        self._index += 1
        self._open_segment()
        yield Say(Validated(segment, 0.0, done.logs), since=done.ended)
        yield self._after(in_time, now)

    def _closed(self, done: ValidationDone) -> Segment:
        """The segment as the master hears it."""
        return Segment(
            trial=self._trial,
            attempt=self._attempt,
            index=self._index,
            steps=self._steps,
            train_examples=self._examples,
            train_seconds=moment(self._seconds),  # a sum of whole microseconds, without the error of floats
            tally=done.tally,
            validate_seconds=done.seconds,
            skipped=done.skipped,
        )

    def _after(self, in_time: bool, now: float) -> Action:
        """What follows a validation."""
        if (self._halted or not in_time) and self._done < self._plan.steps:
            return self._close(State.STOPPED, ENDED, self._kept)
        if self._plan.patience and self._since_best >= self._plan.patience:
            reason = f"no better error in {self._since_best} validations"
            return self._close(State.COMPLETE, reason, self._kept)
        if self._done == self._plan.steps:
            return self._close(State.COMPLETE, "", self._kept)
        return self._next(now)
