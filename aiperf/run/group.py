"""One group as the master sees it: its assigned trials, and how long it may be silent.

A slow device must not be taken for a dead one. A group may be silent for as long as its current work takes;
the time of a step is predicted from what the ranks measured before the span.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf

from aiperf.clock import moment
from aiperf.journal.events import Dispatched
from aiperf.wire.reports import Ceiling
from aiperf.wire.trial import State
from nas.ops import TENSOR_OPS, Ops

FIRST_STEP = 5.0
"""Factor on the usual silence, or on the predicted time of a step, for the first step of a trial, in which
the libraries choose their kernels and all caches are cold."""

BLOCKS = 4.0
"""Factor on the time of the last block of steps. A slow device reports rarely, and its next block may take
longer."""

SLOWER = 8.0
"""Factor by which a training step is assumed to be slower than the fastest products, if a step of the seed
took too long to be measured. A step also moves data and makes small products, which reach a fraction of that
rate."""

RESTARTS = 3
"""Number of times that a group is restarted without a validation in between. A device that failed once may
work again; one that never gets as far as a validation would take trials from the other groups until the
end."""

FAILURES = 2
"""Number of trials of one group that may fail in a row before it pauses: single architectures do fail."""

REST_SECONDS = 30.0
"""Longest pause in seconds of a group whose trials keep failing. If every trial fails at once, the journal
must not fill with failures; a transient fault, as of a file system, must not cost much of the span."""


@dataclass
class Group:
    """The state of a group that the journal does not record. Times are those of the leg in seconds; those of
    silence are on the `AttentiveClock` clock of this process."""

    ranks: tuple[int, ...]
    silence_seconds: float
    """Silence in seconds that is never a loss."""
    assigned: deque[Dispatched] = field(default_factory=deque)
    """The trial in training, then the one in preparation."""
    prepared: int = 1
    """Trials that the group prepares while it trains one, once it wants the next: `search.prepared`. A second
    one would only be proposed earlier, from fewer results."""
    wanting: tuple[int, int] | None = None
    """Trial and attempt during which the group last wanted its next trial."""
    alive: bool = True
    late: bool = False
    """Whether its trial was given up when the leg ended. It may still answer, and then run the test."""
    losses: int = 0
    """Number of losses without a validation in between."""
    failures: int = 0
    """Number of trials that failed in a row."""
    closing: bool = False
    """Whether it begins no further trial in this leg, because the deadline is too near."""
    rests_until: float = 0.0
    heard: float = 0.0
    """Time of its last message, or of its last assignment."""
    patience: float = 0.0
    """Seconds of silence after `heard` that are no loss."""
    reported: float = 0.0
    """End time of the last work that it reported."""
    refused: str = ""
    """Reason why one of its ranks cannot take part, as the rank stated it."""

    def wants_more(self, now: float) -> bool:
        """Whether it has no trial, or wants the next one after the last that it was given, which may run
        already while the one before it is written."""
        if not self.alive or self.closing or now < self.rests_until:
            return False
        if not self.assigned:
            return True
        last = self.assigned[-1]
        return self.prepared > 0 and self.wanting == (last.trial.number, last.attempt)

    def has(self, trial: int, attempt: int) -> bool:
        """Whether this attempt is assigned to the group now."""
        return any((job.trial.number, job.attempt) == (trial, attempt) for job in self.assigned)

    def assign(self, job: Dispatched, now: float, ceilings: Mapping[int, Ceiling]) -> None:
        """Adds a trial; if the group had none, its silence begins to count now."""
        self.assigned.append(job)
        if len(self.assigned) == 1:
            self.heard = now
            self.await_first_step(ceilings)

    def await_first_step(self, ceilings: Mapping[int, Ceiling]) -> None:
        """Sets the patience for the first step of the trial that the group begins now. `ceilings` are those
        of the leg, by rank."""
        measured = [ceilings[rank] for rank in self.ranks if rank in ceilings]
        expected = step_seconds(self.assigned[0], measured) if self.assigned else 0.0
        self.patience = FIRST_STEP * max(self.silence_seconds, expected)

    def await_block(self, last_seconds: float) -> None:
        """Sets the patience for the next block of steps, after one that took `last_seconds`."""
        self.patience = max(self.silence_seconds, BLOCKS * last_seconds)

    def ended(self, end: float) -> float:
        """`end`, but never before what the group reported earlier: the age of a message does not include its
        travel, so two ends in a row may appear in the wrong order."""
        self.reported = max(self.reported, moment(end))
        return self.reported

    def drop(self, trial: int, ceilings: Mapping[int, Ceiling]) -> None:
        """Removes a trial that the group has finished; the next one begins."""
        self.assigned = deque(job for job in self.assigned if job.trial.number != trial)
        self.await_first_step(ceilings)

    def rest_after(self, state: State, now: float) -> None:
        """Pauses the group after too many failures in a row, twice as long each time."""
        self.failures = self.failures + 1 if state is State.FAILED else 0
        if self.failures > FAILURES:
            self.rests_until = now + min(REST_SECONDS, 2.0 ** (self.failures - FAILURES - 1))

    @property
    def overdue(self) -> float:
        """Time from which its silence is a loss; infinite without work, because then it sends nothing. The
        clock is `AttentiveClock`'s."""
        return self.heard + self.patience if self.assigned else inf

    def lose(self) -> None:
        """Marks the group as lost; other groups take over its trials."""
        self.alive = False
        self.assigned.clear()
        self.losses += 1

    @property
    def is_given_up(self) -> bool:
        """Whether it was lost too often to be started again."""
        return self.losses > RESTARTS


def step_seconds(job: Dispatched, ceilings: Iterable[Ceiling]) -> float:
    """Predicted time in seconds of one training step on the slowest of the group's ranks, which share the
    batch; 0 if none of them was measured. A step is taken to run at the rate of the seed's, or at an eighth
    of the ceiling."""
    operations = _tensor_operations(job.forward, job.backward) * job.trial.hyper.batch_size
    rates = [
        ceiling.seed.typical if ceiling.seed else ceiling.product.fastest / SLOWER for ceiling in ceilings
    ]
    slowest = min(rates, default=0.0)
    return operations / (len(rates) * slowest) if slowest > 0 else 0.0


@lru_cache(maxsize=1 << 12)
def _tensor_operations(forward: Ops, backward: Ops) -> int:
    """Operations of the products in a training step of one example."""
    return (forward + backward).price(TENSOR_OPS)
