"""One group as the master sees it: what it was given, and how long it may be silent.

A slow device is not a dead one. A group may be silent for as long as the work takes that it has begun, and
what a step takes is foreseen from what the ranks did before the span.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from aiperf.clock import moment
from aiperf.journal.events import Dispatched
from aiperf.trial import State
from aiperf.wire.messages import Ceiling
from nas.ops import TENSOR_OPS, Ops

AHEAD = 2
"""Trials that a group has at a time: it trains one and prepares the next beside it, so that no device waits
between two trials. A third would only be proposed earlier, from fewer results.

Beside its first trial in a leg nothing is prepared: when a run begins there is nothing to start from but the
seed's first weights. So a group waits once for a preparation, and its second trial begins with what was
learnt: docs/search.md."""

FIRST_STEP = 5.0
"""Times the usual silence, or times what a step is foreseen to take. In the first step of a trial the
libraries choose their kernels, and all caches are cold."""

BLOCKS = 4.0
"""Times the last block of steps. A slow device reports a block rarely, and the next one may take longer."""

SLOWER = 8.0
"""Times slower than the fastest products: a step of a seed that took too long to be measured. A step also
moves data and makes small products, which reach a fraction of that rate."""

RESTARTS = 3
"""Of one group without a validation in between. A device that failed once may work again; one that never
gets as far as a validation would take trials from the other groups until the end."""

FAILURES = 2
"""Trials of one group that may fail in a row before it pauses: single architectures do fail."""

REST_SECONDS = 30.0
"""The longest pause of a group whose trials keep failing. Where every trial fails at once, the journal must
not fill with failures; a fault that passes, as of a file system, must not cost much of the span."""


@dataclass
class Group:
    """What the journal does not say of a group. Times are those of the leg [s], those of silence on the
    `Listening` of this process."""

    ranks: tuple[int, ...]
    silence_seconds: float
    """The usual silence that is no loss."""
    assigned: deque[Dispatched] = field(default_factory=deque)
    """The trial that it trains, then the one that it prepares."""
    prepared: int = AHEAD - 1
    """Trials that it has beside the one that it trains, from its second one on: `search.prepared`."""
    ahead: int = 1
    """Trials that it may have at a time."""
    alive: bool = True
    late: bool = False
    """Its trial was given up when the leg ended; it may still answer, and so make the test."""
    losses: int = 0
    """Without a validation in between."""
    failures: int = 0
    """In a row."""
    closing: bool = False
    """It begins nothing more in this leg: the deadline is too near."""
    rests_until: float = 0.0
    heard: float = 0.0
    """When it last said something, or was last given something to do."""
    patience: float = 0.0
    """Seconds of silence from then on that are no loss."""
    reported: float = 0.0
    """When what it reported last had ended."""
    refused: str = ""
    """Why a rank of it cannot take part, in the rank's own words."""

    def wants_more(self, now: float) -> bool:
        return self.alive and not self.closing and now >= self.rests_until and len(self.assigned) < self.ahead

    def has(self, trial: int, attempt: int) -> bool:
        return any((job.trial.number, job.attempt) == (trial, attempt) for job in self.assigned)

    def assign(self, job: Dispatched, now: float, ceilings: Mapping[int, Ceiling]) -> None:
        self.assigned.append(job)
        if len(self.assigned) == 1:
            self.heard = now
            self.await_first_step(ceilings)

    def await_first_step(self, ceilings: Mapping[int, Ceiling]) -> None:
        """Of the trial that it begins now. `ceilings` are those of the leg, by rank."""
        measured = [ceilings[rank] for rank in self.ranks if rank in ceilings]
        expected = step_seconds(self.assigned[0], measured) if self.assigned else 0.0
        self.patience = FIRST_STEP * max(self.silence_seconds, expected)

    def await_block(self, last_seconds: float) -> None:
        """A further one, after one that took so long."""
        self.patience = max(self.silence_seconds, BLOCKS * last_seconds)

    def ended(self, end: float) -> float:
        """`end`, but not before what it reported earlier: some messages travel faster than others."""
        self.reported = max(self.reported, moment(end))
        return self.reported

    def drop(self, trial: int, ceilings: Mapping[int, Ceiling]) -> None:
        """It is done with that trial, and begins the next one."""
        self.assigned = deque(job for job in self.assigned if job.trial.number != trial)
        self.ahead = 1 + self.prepared
        self.await_first_step(ceilings)

    def rest_after(self, state: State, now: float) -> None:
        """Pauses, longer each time, when a trial has ended and too many in a row have failed."""
        self.failures = self.failures + 1 if state is State.FAILED else 0
        if self.failures > FAILURES:
            self.rests_until = now + min(REST_SECONDS, 2.0 ** (self.failures - FAILURES - 1))

    @property
    def overdue(self) -> float:
        """When its silence is a loss. Without work it has nothing to say."""
        return self.heard + self.patience if self.assigned else inf

    def lose(self) -> None:
        """What it had to do goes to others."""
        self.alive = False
        self.assigned.clear()
        self.losses += 1

    @property
    def is_given_up(self) -> bool:
        """Whether it was lost too often to be started again."""
        return self.losses > RESTARTS


def step_seconds(job: Dispatched, ceilings: Iterable[Ceiling]) -> float:
    """Of one step of a trial by the slowest of its group's ranks; 0 where none of them was measured."""
    operations = (Ops(*job.forward) + Ops(*job.backward)).price(TENSOR_OPS) * job.trial.hyper.batch_size
    rates = [
        ceiling.seed.typical if ceiling.seed else ceiling.product.fastest / SLOWER for ceiling in ceilings
    ]
    slowest = min(rates, default=0.0)
    return operations / (len(rates) * slowest) if slowest > 0 else 0.0
