"""The records that a journal is read into: the legs of a run, its trials, their attempts and validations."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from aiperf.journal.columns import AttemptRows, ValidationRow, Validations
from aiperf.journal.events import (
    Dispatched,
    Ended,
    GroupLost,
    HostUsed,
    LegBegan,
    LegEnded,
    NonceGiven,
    RankReady,
)
from aiperf.wire.reports import NOTHING_KEPT, Ceiling, Control, DeviceCheck, Fabric, Fallback, Finished, Ready
from aiperf.wire.trial import Segment, State, Trial
from nas.frozen import frozen

AFTER_LAST_LINE_SECONDS = 10.0
"""Longest time in seconds between two lines of a living master, which writes a beat after half of it. A leg
that was killed counts until this long after its last line."""


@frozen
class Stall:
    """A period without lines, in seconds of the leg, that the master recorded when it could write again."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass
class Leg:
    """A period of a run from its start, or a resume, to its end. Times are on the leg's own clock in
    seconds."""

    index: int
    began: LegBegan
    ranks: list[RankReady] = field(default_factory=list)
    """The ready ranks in the order of their arrival; those of a restarted group appear again."""
    devices: dict[int, Ready] = field(default_factory=dict)
    """The last `Ready` of each rank: a rank that was restarted is still one device."""
    least_memory_bytes: float = inf
    """Smallest memory in bytes of the devices of `ranks`."""
    first_devices: dict[int, Ready] = field(default_factory=dict)
    """The first `Ready` of each rank, which bounds its speed: a later one, after a restart, could have been
    written into a forged journal at any time."""
    first_of_host: dict[str, int] = field(default_factory=dict)
    """The first rank that was ready on each host."""
    ceilings: dict[int, Ceiling] = field(default_factory=dict)
    """Ceilings by rank."""
    controls: dict[int, Control] = field(default_factory=dict)
    """Controls by rank."""
    checks: dict[int, DeviceCheck] = field(default_factory=dict)
    """The first device check of each rank, before the span."""
    repeats: dict[int, DeviceCheck] = field(default_factory=dict)
    """The second one of ranks whose device had deviated."""
    end_checks: dict[int, DeviceCheck] = field(default_factory=dict)
    """The device check of each rank after the span."""
    fabric: Fabric | None = None
    """What lies between the devices; None if nobody measured it, and in older journals."""
    threads: dict[int, set[int]] = field(default_factory=dict)
    """Numbers of threads that each rank used for trials, as far as they are recorded."""
    released: float | None = None
    """Time at which the clock started; None if it never did."""
    deadline: float | None = None
    ended: LegEnded | None = None
    losses: list[GroupLost] = field(default_factory=list)
    uses: list[HostUsed] = field(default_factory=list)
    """How the processors of the hosts were used, interval by interval."""
    started: dict[int, float] = field(default_factory=dict)
    """Time at which each lost group was last restarted; other groups were started with the leg."""
    arrivals: list[tuple[float, float]] = field(default_factory=list)
    """For each entry of `ranks`, the time of its line, and the time since its group was started."""
    alive: dict[int, set[int]] = field(default_factory=dict)
    """The ranks that are ready now, by group."""
    first: float = 0.0
    """Time of the first line of the leg."""
    last: float = 0.0
    """Time of the last line so far."""
    longest_silence: float = 0.0
    """Longest time in seconds between two lines, stalls not counted."""
    stalls: list[Stall] = field(default_factory=list)
    first_line: int = 0
    """Line number of `began`; likewise of the last line of the leg, and of those that gave the nonce and
    ended the span, 0 without one."""
    last_line: int = 0
    nonce_line: int = 0
    end_line: int = 0
    nonce: NonceGiven | None = None
    nonce_time: float = 0.0

    @property
    def kind(self) -> str:
        """Kind of its devices as torch names it, if that is "cuda": only these state a version of CUDA."""
        first = next(iter(self.devices.values()), None)
        return "cuda" if first and "cuda" in first.software else ""

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.began.groups)

    @property
    def end(self) -> float:
        """End of the span: as recorded, otherwise AFTER_LAST_LINE_SECONDS after the last line; never after
        the deadline."""
        end = self.last + AFTER_LAST_LINE_SECONDS if self.ended is None else self.ended.end
        return end if self.deadline is None else min(end, self.deadline)

    @property
    def span_seconds(self) -> float:
        return 0.0 if self.released is None else max(0.0, self.end - self.released)

    def is_ready(self, group: int) -> bool:
        """Whether all ranks of a group are ready now."""
        return len(self.alive.get(group, ())) == len(self.began.groups[group])

    def hosts_of(self, group: int) -> tuple[str, ...]:
        """The hosts of a group's ranks, in their order; a rank that was never ready is on no known one."""
        known = (self.devices.get(rank) for rank in self.began.groups[group])
        return tuple(dict.fromkeys(ready.host for ready in known if ready is not None))

    def ready_like(self, host: str) -> Ready | None:
        """The rank that describes a further one of a host best: the first that was ready on the same host,
        otherwise the first of the leg; None before any was."""
        if not self.ranks:
            return None
        return self.devices[self.first_of_host.get(host, self.ranks[0].ready.rank)]

    def in_time(self, end: float) -> bool:
        """Whether a validation that ended at `end` still counts."""
        return self.deadline is None or end <= self.deadline


@frozen
class Validation:
    """A closed segment with its times, in seconds of its leg."""

    segment: Segment
    end: float
    """Time at which the validation ended."""
    t: float
    """Time of the line."""
    in_time: bool
    """Whether it ended before the deadline of its leg; if not, it is not credited and chooses no network."""
    logs: str = ""
    """Hash over the logs of its group (`Closed.logs`)."""

    @property
    def name(self) -> str:
        return f"trial {self.segment.trial}, segment {self.segment.index}"


@dataclass(slots=True)  # a long run has a hundred thousand of them
class Attempt:
    """One attempt to train a trial, from its dispatch on."""

    index: int
    """Index among all attempts of the run, from 0; `Blocks.attempts` refers to it."""
    dispatched: Dispatched
    leg: Leg
    attempt_rows: AttemptRows = field(repr=False)
    """What few ask of an attempt, of all attempts; its own row is at `index`."""
    table: Validations = field(repr=False)
    """The validations of all attempts."""
    places: array[int] = field(default_factory=lambda: array("i"))
    """The rows of its own in that table, in order."""
    began: float | None = None
    """Time in seconds of its leg at which it began its first step; None before that."""
    built_key: str = ""
    """What its group told of the preparation, with these defaults before it began (`Started.graph_key`);
    likewise the next three fields."""
    engine: str = ""
    chosen: str = ""
    threads: tuple[int, ...] = ()
    fallback: Fallback | None = None
    """The fallback after which its steps are eager, if there was one."""
    ended: float | None = None
    """Time in seconds of its leg at which it ended; None before that."""
    told_state: State | None = None
    """What its group told of the end, with these defaults before it (`Finished.state`); likewise the next
    three fields."""
    reason: str = ""
    out_of_memory: bool = False
    kept: int | None = None
    """Index of the segment whose network was kept, or NOTHING_KEPT; None before the end, and if the attempt
    failed."""
    abandoned: bool = False
    """Whether its group was lost, or its leg was killed, before it ended."""
    steps: int = 0
    """Number of steps in all blocks that arrived, credited or not; `Replay.worked` has further sums."""

    @property
    def dispatch_time(self) -> float:
        """Time of the line `Dispatched`, in seconds of its leg, as all times of an attempt."""
        time: float = self.attempt_rows.value(self.index, "dispatch_time")
        return time

    @property
    def begin_time(self) -> float | None:
        """Time of the line that says that it began; None without one."""
        return self.attempt_rows.time(self.index, "begin_time")

    @property
    def prepare_seconds(self) -> float:
        """What its group told of the preparation (`Started`); 0 before it began."""
        seconds: float = self.attempt_rows.value(self.index, "prepare_seconds")
        return seconds

    @property
    def end_time(self) -> float | None:
        """Time of the line that says that it ended; None without one."""
        return self.attempt_rows.time(self.index, "end_time")

    @property
    def end_line(self) -> int:
        """Number of that line; 0 without one."""
        line: int = self.attempt_rows.value(self.index, "end_line")
        return line

    @property
    def age_seconds(self) -> float:
        """What its group told of the end (`Finished`); 0 before it. Likewise the hash of the weights, which
        is empty."""
        seconds: float = self.attempt_rows.value(self.index, "age_seconds")
        return seconds

    @property
    def weights(self) -> str:
        return self.attempt_rows.weights[self.index]

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
    def ranks(self) -> tuple[int, ...]:
        """The ranks of its group."""
        return self.leg.began.groups[self.group]

    @property
    def num_closed(self) -> int:
        """Number of its validations, which is that of its closed segments."""
        return len(self.places)

    @property
    def rows(self) -> list[ValidationRow]:
        """The numbers of its validations. What looks at all validations of a long run reads these, or the
        columns of `Replay.validations`."""
        return [self.table.row(place) for place in self.places]

    @property
    def validations(self) -> list[Validation]:
        """Its validations, made of their rows."""
        return [self._validation(place) for place in self.places]

    @property
    def validated_steps(self) -> int:
        """Number of steps in the segments that validations closed."""
        return sum(row.steps for row in self.rows)

    @property
    def state(self) -> State:
        """What became of it, as far as the journal says. LOST follows from the loss of its group or leg."""
        if self.told_state is not None:
            return self.told_state
        if self.abandoned:
            return State.LOST
        return State.WAITING if self.began is None else State.RUNNING

    @property
    def ending(self) -> Ended:
        """The event of its end, without the traceback. Only an attempt that has ended has one."""
        assert self.told_state is not None
        assert self.ended is not None
        told = Finished(
            self.trial.number,
            self.number,
            self.told_state,
            self.reason,
            self.out_of_memory,
            weights=self.weights,
            age_seconds=self.age_seconds,
            kept=self.kept,
        )
        return Ended(told, self.ended)

    @property
    def chosen_from(self) -> bool:
        """Whether its network can be the best one of the run: it ended by itself, by the deadline or by a
        limit, and a network was kept."""
        return self.state in (State.COMPLETE, State.STOPPED) and self._best is not None

    @property
    def curve(self) -> list[tuple[int, float]]:
        """Pairs of training examples so far and unbounded validation error, for the validations in time. The
        search compares trials by it."""
        curve, examples = [], 0
        for row in self.rows:
            examples += row.train_examples
            if row.in_time:
                curve.append((examples, row.unbounded))
        return curve

    @property
    def best_validation(self) -> Validation | None:
        """The validation whose network was kept; until that is known, the first with the lowest unbounded
        error."""
        return None if (best := self._best) is None else self._validation(best)

    @property
    def chosen_among(self) -> Sequence[int]:
        """The rows of the validations that could be the best: those up to the kept one, otherwise those in
        time.

        Messages take time, and the master may stall, so near the deadline a validation can be in time for its
        group and too late for the journal, or, rarely, the other way round. Which network is kept is then the
        group's decision; what is credited is decided by the journal alone.
        """
        if self.kept is None:
            return [place for row, place in zip(self.rows, self.places) if row.in_time]
        return self.places[: self.kept + 1]

    @property
    def error(self) -> float | None:
        """Validation error of the network that was kept."""
        return None if (best := self._best) is None else self.table.tallies[best].error

    @property
    def unbounded(self) -> float | None:
        """Unbounded validation error of that network, by which the best one of a run is chosen."""
        return None if (best := self._best) is None else self.table.tallies[best].unbounded

    @property
    def _best(self) -> int | None:
        """The row of `best_validation`."""
        if (kept := self.kept) is not None:
            return None if kept == NOTHING_KEPT else self.places[kept]
        return min(self.chosen_among, key=lambda place: self.table.row(place).unbounded, default=None)

    def _validation(self, place: int) -> Validation:
        row = self.table.row(place)
        segment = Segment(
            trial=self.trial.number,
            attempt=self.number,
            index=row.segment,
            steps=row.steps,
            train_examples=row.train_examples,
            train_seconds=row.train_seconds,
            tally=self.table.tallies[place],
            validate_seconds=row.validate_seconds,
            skipped=row.skipped,
        )
        return Validation(segment, row.end, row.t, row.in_time, self.table.logs[place])


@dataclass(slots=True)
class TrialStory:
    """A trial with all its attempts, of which the last one counts for the search."""

    attempts: tuple[Attempt, ...] = ()

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
