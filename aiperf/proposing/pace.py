"""When a trial stops, how much of it is one block of steps, and the time that a group reserves for its
closing validation before a deadline. All drivers of the conduct keep it.

The groups reserve time by a formula, and a rule judges them by it. The journal has all that it needs: the
operations of the networks, and how long recent validations of the group took. It was fitted to 3,203
validations of 54 runs on busy hosts (docs/score.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiperf.proposing.plan import SEGMENT_SECONDS
from aiperf.wire.trial import BLOCK_SECONDS
from nas.frozen import frozen

BLOCKS_A_SECOND = 43.0
"""Most blocks per second of all groups together: an hour of them is about 50 MB of journal. Beyond 86 groups
blocks grow."""

SILENCE_SHARE = 1 / 5
"""Longest block as a share of the silence after which a group is lost, however many groups there are."""

LONGEST_BLOCK_SECONDS = 20.0
"""Longest block, however long that silence: a group sees a stop after its block, and `rules.trial_length`
allows a minute."""

TRANSIT_SECONDS = 0.05
"""Time of a message, with room. A group's deadline is earlier by it, because the master counts from the
sending of its release to the arrival of a validation."""

WORKING_SECONDS = 5.0
"""Time between two messages of a long validation that say that it goes on."""

CLOSE_NOW, VALIDATE_NOW = -1, 0
"""What `steps_of_block` says instead of a number of steps."""

CLOSING_SHARE = 1.25
"""Reserved time as a multiple of the longest of the recent validations."""
RECENT = 8
"""Number of recent validations of the group: as many as show how much they differ on a busy host."""
MOST_SCALING = 2.0
"""Largest factor between networks of different sizes. A validation has costs that do not grow with its
network, so one of a much smaller network is no measure of this one."""


def block_seconds(groups: int, silence_seconds: float) -> float:
    """How long a block of steps is to be, in each of this many groups."""
    longest = min(LONGEST_BLOCK_SECONDS, SILENCE_SHARE * silence_seconds)
    return min(max(BLOCK_SECONDS, groups / BLOCKS_A_SECOND), longest)


@frozen
class TimedValidation:
    """A validation of the group."""

    operations: int
    """OPS of one validated example."""
    seconds: float


def reserved_seconds(recent: Sequence[TimedValidation], operations: int) -> float:
    """Time in seconds for the validation of a network with this many operations per example, after these
    validations, of which the last ones count; 0 without any."""
    return CLOSING_SHARE * max(
        (each.seconds * _scaling(each, operations) for each in recent[-RECENT:]), default=0.0
    )


def _scaling(validated: TimedValidation, operations: int) -> float:
    if not (validated.operations and operations):
        return 1.0
    return min(max(operations / validated.operations, 1 / MOST_SCALING), MOST_SCALING)


@dataclass
class Pace:
    """The deadline on this host's clock, and how long validations take. In a group the leader's counts.

    Every `now` is in seconds on that clock.
    """

    halted: bool = False
    """Whether the master said to stop."""
    deadline: float = math.inf
    """On this host's clock; infinite without one."""
    block_seconds: float = BLOCK_SECONDS
    operations: int = 0
    """OPS of one validated example of the network that is trained, or was last."""
    recent: list[TimedValidation] = field(default_factory=list)
    """The last validations of the group, in order."""
    step_seconds: float = 0.0
    """Length of a step, as it was last known."""

    def release(self, now: float, seconds_left: float | None, block_seconds: float) -> None:
        """Starts the clock of the run, which stops after `seconds_left`, if ever."""
        self.block_seconds = block_seconds
        if seconds_left is not None:
            self.deadline = now + seconds_left - TRANSIT_SECONDS

    @property
    def validate_seconds(self) -> float:
        """Length of the last validation; 0 before the first."""
        return self.recent[-1].seconds if self.recent else 0.0

    def validated(self, seconds: float) -> None:
        """Takes the length of a validation of the network that is trained."""
        self.recent = [*self.recent, TimedValidation(self.operations, seconds)][-RECENT:]

    def must_close(self, now: float) -> bool:
        """Whether no step is to be begun: the master said to stop, or too little is left for one."""
        left = self.seconds_left(now)
        return self.halted or left <= 0 or left < self.step_seconds

    def seconds_left(self, now: float) -> float:
        """Time left for training before the closing validation must begin."""
        return self.deadline - reserved_seconds(self.recent, self.operations) - now

    def steps_left(self, now: float, step_seconds: float) -> float:
        """How many steps of this length fit before the deadline; without one, infinitely many."""
        return max(0.0, self.seconds_left(now) / step_seconds)

    def steps_of_block(self, now: float, step_seconds: float, trained_seconds: float, left: int) -> int:
        """How many steps are made before the next look at the clock: at least one, at most `left` of the
        segment, which was trained for `trained_seconds`; or CLOSE_NOW, or VALIDATE_NOW.

        Towards the deadline a block takes half of what is left, so that a step that suddenly takes longer
        does not carry the closing validation past it.
        """
        self.step_seconds = step_seconds
        if self.must_close(now):
            return CLOSE_NOW
        if trained_seconds >= SEGMENT_SECONDS:
            return VALIDATE_NOW
        room = min(self.block_seconds, SEGMENT_SECONDS - trained_seconds, self.seconds_left(now) / 2)
        return max(1, min(int(room / step_seconds), left))
