"""What a journal tells, in nouns: the legs of a run, its trials, their attempts and validations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from aiperf.journal.events import Began, Dispatched, Ended, GroupLost, LegBegan, LegEnded, RankReady
from aiperf.trial import Segment, State, Trial
from aiperf.wire.messages import NOTHING_KEPT, Ceiling, Control, Fallback, Ready

AFTER_LAST_LINE_SECONDS = 10.0
"""The longest silence of a master that lives: a killed leg ends so long after its last line."""


@dataclass(frozen=True)
class Stall:
    """A time [s] without lines that the master wrote down when it woke."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass
class Leg:
    """From a start, or a resume, to the stop. Times are on the leg's own clock."""

    index: int
    began: LegBegan
    ranks: list[RankReady] = field(default_factory=list)
    """In the order of their arrival; those of a restarted group stand again."""
    devices: dict[int, Ready] = field(default_factory=dict)
    """By rank, as it was last ready: a rank that was started again is one device."""
    least_memory_bytes: float = inf
    """Of the devices of `ranks`."""
    first_devices: dict[int, Ready] = field(default_factory=dict)
    """By rank, as it was first ready. That is what bounds its speed: what it says once it was started again
    may have been written at any time."""
    first_of_host: dict[str, int] = field(default_factory=dict)
    """The first rank that was ready on each host."""
    ceilings: dict[int, Ceiling] = field(default_factory=dict)
    """By rank."""
    controls: dict[int, Control] = field(default_factory=dict)
    """By rank."""
    released: float | None = None
    deadline: float | None = None
    ended: LegEnded | None = None
    losses: list[GroupLost] = field(default_factory=list)
    started: dict[int, float] = field(default_factory=dict)
    """When each group was last told to start, after its loss; one that is not here, with the leg."""
    arrivals: list[tuple[float, float]] = field(default_factory=list)
    """Of each of `ranks` the time of its line, and how long before it its group was asked to start."""
    alive: dict[int, set[int]] = field(default_factory=dict)
    """Of each group the ranks that are ready now."""
    first: float = 0.0
    """The time of its first line."""
    last: float = 0.0
    """The time of its last line."""
    longest_silence: float = 0.0
    """Seconds between two of its lines, stalls apart."""
    stalls: list[Stall] = field(default_factory=list)

    @property
    def groups(self) -> int:
        return len(self.began.groups)

    @property
    def end(self) -> float:
        """When the span ends: as recorded, else one beat after the last line; never past the deadline."""
        end = self.last + AFTER_LAST_LINE_SECONDS if self.ended is None else self.ended.end
        return end if self.deadline is None else min(end, self.deadline)

    @property
    def span_seconds(self) -> float:
        return 0.0 if self.released is None else max(0.0, self.end - self.released)

    def is_ready(self, group: int) -> bool:
        """Whether all ranks of a group are, now."""
        return len(self.alive.get(group, ())) == len(self.began.groups[group])

    def in_time(self, end: float) -> bool:
        """Whether a validation that ended at `end` still counts."""
        return self.deadline is None or end <= self.deadline


@dataclass(frozen=True, slots=True)  # a long run has a million of them
class Validation:
    """A closed segment, and when."""

    segment: Segment
    end: float
    t: float
    in_time: bool
    """Before the deadline of its leg; otherwise it credits nothing and chooses nothing."""
    logs: str = ""
    """The hash over the logs of its group; see `Closed`."""

    @property
    def name(self) -> str:
        return f"trial {self.segment.trial}, segment {self.segment.index}"


def best_of(validations: Iterable[Validation]) -> Validation | None:
    """The first with the lowest error, unbounded."""
    return min(validations, key=lambda validation: validation.segment.unbounded, default=None)


@dataclass
class Attempt:
    """One training of a trial, from its dispatch on."""

    index: int
    """Among all attempts of the run, from 0; the key of `Blocks.attempts`."""
    dispatched: Dispatched
    leg: Leg
    dispatch_time: float
    began: Began | None = None
    begin_time: float | None = None
    """The time of the line; `began.end` is when it began."""
    fallback: Fallback | None = None
    """Since then its steps are eager."""
    validations: list[Validation] = field(default_factory=list)
    ended: Ended | None = None
    end_time: float | None = None
    """The time of the line that ended it."""
    abandoned: bool = False
    """Its group was lost or its leg was killed before it ended."""
    steps: int = 0
    """In blocks that arrived, whether credited or not; so the examples and seconds."""
    examples: int = 0
    seconds: float = 0.0
    loss: float | None = None
    """Of the last block."""

    @property
    def number(self) -> int:
        return self.dispatched.attempt

    @property
    def trial(self) -> Trial:
        return self.dispatched.trial

    @property
    def group(self) -> int:
        return self.dispatched.group

    @property
    def state(self) -> State:
        if self.ended is not None:
            return self.ended.finished.state
        if self.abandoned:
            return State.LOST
        return State.WAITING if self.began is None else State.RUNNING

    @property
    def chosen_from(self) -> bool:
        """Whether its network may be the best one: it ended by itself, by the deadline or by a limit, and one
        was kept."""
        return self.state in (State.COMPLETE, State.STOPPED) and self.best_validation is not None

    @property
    def curve(self) -> list[tuple[int, float]]:
        """After so many training examples, this validation error, unbounded: by it the search compares."""
        curve, examples = [], 0
        for validation in self.validations:
            examples += validation.segment.train_examples
            if validation.in_time:
                curve.append((examples, validation.segment.unbounded))
        return curve

    @property
    def best_validation(self) -> Validation | None:
        """The one whose network was kept, else the first with the lowest error, unbounded."""
        kept = self.kept
        if kept is None:
            return best_of(self.chosen_among)
        return None if kept == NOTHING_KEPT else self.validations[kept]

    @property
    def chosen_among(self) -> list[Validation]:
        """The validations that could be the best one: those up to the one kept, else those in time.

        Messages take time, and the master may stall, so about the deadline a group can have a validation in
        time that comes too late for the journal, or, now and then, the other way round. Its network is then
        the one of its own choice. What is credited is by the journal alone.
        """
        if self.kept is None:
            return [validation for validation in self.validations if validation.in_time]
        return self.validations[: self.kept + 1]

    @property
    def kept(self) -> int | None:
        """As told at its end: the segment, or NOTHING_KEPT; None before that, and where it failed."""
        return None if self.ended is None else self.ended.finished.kept

    @property
    def error(self) -> float | None:
        """Of the network that was kept."""
        return None if self.best_validation is None else self.best_validation.segment.error

    @property
    def unbounded(self) -> float | None:
        """The same, by which the best network of a run is chosen."""
        return None if self.best_validation is None else self.best_validation.segment.unbounded


@dataclass
class TrialStory:
    """A trial and all its attempts; the last one counts for the search."""

    attempts: list[Attempt] = field(default_factory=list)

    @property
    def number(self) -> int:
        return self.trial.number

    @property
    def trial(self) -> Trial:
        return self.attempts[-1].trial

    @property
    def state(self) -> State:
        return self.attempts[-1].state

    @property
    def error(self) -> float | None:
        return self.attempts[-1].error

    @property
    def best_validation(self) -> Validation | None:
        return self.attempts[-1].best_validation
