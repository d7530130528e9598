"""The groups as the master sees them: what they are given, how long they may be silent, loss and restarts.

A slow device is not a dead one. A group may be silent for as long as the work takes that it has begun, and
what a step takes is foreseen from what the ranks did before the span.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from aiperf.journal.events import Dispatched, GroupLost
from aiperf.ranks.world import World
from aiperf.run.before_release import devices_by_host
from aiperf.run.ledger import Ledger
from aiperf.trial import State
from aiperf.wire.messages import Assign, Ceiling, Observe, Release, Setup, ToGroup
from nas.ops import TENSOR_OPS, Ops
from nas.search import Exhausted

AHEAD = 2
"""Trials that a group has at a time: it trains one and prepares the next beside it, so that no device waits
between two trials. A third would only be proposed earlier, from fewer results."""

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

DEAF_SECONDS = 1.0
"""Between two looks at who is silent, which usually are a quarter of a second apart. If it was longer, this
process was held up, as by a file system that stalls: what it did not hear meanwhile is no group's silence."""


@dataclass
class Group:
    """What the journal does not say of a group. Times are those of the leg [s]."""

    ranks: tuple[int, ...]
    silence_seconds: float
    """The usual silence that is no loss."""
    assigned: deque[Dispatched] = field(default_factory=deque)
    """The trial that it trains, then the one that it prepares."""
    alive: bool = True
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
        return self.alive and not self.closing and now >= self.rests_until and len(self.assigned) < AHEAD

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
        self.reported = max(self.reported, end)
        return self.reported

    def drop(self, trial: int, ceilings: Mapping[int, Ceiling]) -> None:
        """It is done with that trial, and begins the next one."""
        self.assigned = deque(job for job in self.assigned if job.trial.number != trial)
        self.await_first_step(ceilings)

    def rest_after(self, state: State, now: float) -> None:
        """Pauses, longer each time, when a trial has ended and too many in a row have failed."""
        self.failures = self.failures + 1 if state is State.FAILED else 0
        if self.failures > FAILURES:
            self.rests_until = now + min(REST_SECONDS, 2.0 ** (self.failures - FAILURES - 1))

    def is_overdue(self, now: float) -> bool:
        """Whether its silence is a loss. Without work it has nothing to say."""
        return bool(self.assigned) and now - self.heard > self.patience

    def lose(self) -> None:
        """What it had to do goes to others."""
        self.alive = False
        self.assigned.clear()
        self.losses += 1

    @property
    def is_given_up(self) -> bool:
        """Whether it was lost too often to be started again."""
        return self.losses > RESTARTS


class Groups:
    """All groups of a leg."""

    def __init__(self, ledger: Ledger, world: World, setup: Setup, silence_seconds: float) -> None:
        """`setup` is the first message to a group, also to one that is started again."""
        self.ledger, self.world, self.setup = ledger, world, setup
        self.each = [Group(ranks, silence_seconds) for ranks in world.groups]
        self.closing = False
        """The leg ends: nothing more is dispatched, and no group is started again."""
        self.last_idle = 0.0
        """When a group last ended a trial or was lost."""
        self._in_vain: float | None = None  # `last_idle` when there was no new architecture to be found
        self._looked = self._held_up = 0.0

    @property
    def at_work(self) -> bool:
        return any(group.assigned for group in self.each)

    def say_all(self, message: ToGroup) -> None:
        for index, group in enumerate(self.each):
            if group.alive:
                self.world.send(index, message)

    def fill(self) -> None:
        """Gives each group what it has room for. Raises Exhausted when the search finds nothing new and no
        trial is in flight: what is in flight may yet have children, so its end is waited for."""
        if self._in_vain == self.last_idle:
            return
        for index, group in enumerate(self.each):
            while self._is_ready(index) and group.wants_more(self.ledger.now):
                try:
                    job = self.ledger.jobs.next(index)
                except Exhausted:
                    self._in_vain = self.last_idle
                    if not self.at_work:
                        raise
                    return
                if job is None:
                    return
                self.ledger.write(job)
                group.assign(job, self.ledger.now, self.ledger.replay.leg.ceilings)
                self.world.send(index, Assign(job.trial, job.attempt))

    def _is_ready(self, index: int) -> bool:
        return not self.closing and self.ledger.replay.leg.is_ready(index)

    def attentive_seconds(self) -> float:
        """The leg's time less what this process was held up: so long it could hear. Asked all the time."""
        now = self.ledger.now
        deaf, self._looked = now - self._looked, now
        if deaf > DEAF_SECONDS:
            self._held_up += deaf
            for group in self.each:
                group.heard = min(now, group.heard + deaf)
        return now - self._held_up

    def check_silence(self) -> None:
        self.attentive_seconds()
        now = self.ledger.now
        for index, group in enumerate(self.each):
            if group.is_overdue(now):
                self.lose(index, f"said nothing for {now - group.heard:.0f} s")

    def lose(self, index: int, reason: str) -> None:
        """Its trials go to others; it is started again where that can be done."""
        group = self.each[index]
        self.bury(index, reason)
        if not self.closing and not group.is_given_up and self.world.restart(index):
            group.alive = True
            self.world.send(index, self.setup)

    def go_on(self, index: int) -> None:
        """A group that was started again is ready. It computes with the threads chosen before the span."""
        leg = self.ledger.replay.leg
        self.world.send(index, Observe(devices_by_host(event.ready for event in leg.ranks)))
        measured = {rank: leg.ceilings[rank] for rank in self.each[index].ranks if rank in leg.ceilings}
        threads = {str(rank): ceiling.threads for rank, ceiling in measured.items() if ceiling.threads}
        left = None if leg.deadline is None else leg.deadline - self.ledger.now
        self.world.send(index, Release(left, threads))

    def bury_at_work(self, reason: str) -> None:
        for index, group in enumerate(self.each):
            if group.assigned:
                self.bury(index, reason)

    def bury(self, index: int, reason: str) -> None:
        """Records its loss; what it had to do goes to others."""
        self.ledger.write(GroupLost(index, reason))
        self.each[index].lose()
        self.last_idle = self.ledger.now


def step_seconds(job: Dispatched, ceilings: Iterable[Ceiling]) -> float:
    """Of one step of a trial by the slowest of its group's ranks; 0 where none of them was measured."""
    operations = (Ops(*job.forward) + Ops(*job.backward)).price(TENSOR_OPS) * job.trial.hyper.batch_size
    rates = [
        ceiling.seed.typical if ceiling.seed else ceiling.product.fastest / SLOWER for ceiling in ceilings
    ]
    slowest = min(rates, default=0.0)
    return operations / (len(rates) * slowest) if slowest > 0 else 0.0
