"""All groups of a leg: which one gets the next trial, which one has been silent for too long, losses and
restarts. It decides by the ledger's clock and by what groups say, and sends what it decides; the state of one
group is in `group.py`."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf

from aiperf.journal.events import GroupLost
from aiperf.proposing.pace import block_seconds
from aiperf.ranks.world import World
from aiperf.run.group import Group
from aiperf.run.ledger import Ledger
from aiperf.wire.messages import Assign, Observe, Release, Setup, ToGroup
from aiperf.wire.reports import Ready
from nas.search import Exhausted

DEAF_SECONDS = 1.0
"""Time in seconds between two looks at the clock, usually a quarter of a second, beyond which this process
was held up, as by a file system that stalls. It received no messages meanwhile, so that time is no
silence."""


FIRST_AT_A_TIME = 8
"""Number of first trials that are dispatched before the next message is handled, if there are as many: a
message takes as long as a dispatch, and the groups that have begun report that at the same time. So the
messages of 32,768 groups wait for some seconds, once, which is less than a report may be late."""

USE_SECONDS, LEAST_USE_SECONDS, USE_SHARE = 60.0, 2.0, 0.1
"""Time between two reports on the use of a host's processors: a minute, in a short run a tenth of it, because
its last interval is not reported."""


class AttentiveClock:
    """A clock that stops while this process is held up."""

    def __init__(self) -> None:
        """At 0, as the leg's clock."""
        self._looked = self._held_up = 0.0

    def at(self, now: float) -> float:
        """The time `now` on this clock in seconds, assuming no hold-up since the last look."""
        return now - self._held_up

    def look(self, now: float) -> float:
        """This clock's time in seconds. It must be called continually: a long pause counts as a hold-up."""
        deaf, self._looked = now - self._looked, now
        if deaf > DEAF_SECONDS:
            self._held_up += deaf
        return now - self._held_up


class Deadlines:
    """One deadline for each group, which may change at any time.

    Most deadlines are postponed again and again. Each group has one valid entry in a heap, which is checked
    only when it is due, so a message of a group costs no operation on the heap.
    """

    def __init__(self, due: Callable[[int], float]) -> None:
        """`due` returns the current deadline of a group; infinite if it has none."""
        self._due = due
        self._heap: list[tuple[float, int]] = []
        self._noted: dict[int, float] = {}
        """Time of the valid heap entry of each group, which is never later than its deadline. Other entries
        are stale and skipped."""

    def note(self, index: int) -> None:
        """Must be called if a deadline was set or became earlier. A postponed one is noticed by `passed`."""
        due = self._due(index)
        if due < self._noted.get(index, inf):
            self._noted[index] = due
            heapq.heappush(self._heap, (due, index))

    def passed(self, now: float) -> list[int]:
        """The groups whose deadline is over, each once."""
        found = []
        while self._heap and self._heap[0][0] < now:
            at, index = heapq.heappop(self._heap)
            if self._noted.get(index) == at:
                del self._noted[index]
                if self._due(index) < now:
                    found.append(index)
                else:
                    self.note(index)
        return sorted(found)


class WaitingGroups:
    """Queue of groups with room for a trial: groups without any trial first, otherwise first come, first
    served."""

    def __init__(self) -> None:
        """Both queues are dictionaries, which keep their order and from which any group can be removed at
        once."""
        self._idle: dict[int, None] = {}
        self._others: dict[int, None] = {}

    def __bool__(self) -> bool:
        """Whether any group waits."""
        return bool(self._idle or self._others)

    @property
    def idle(self) -> int | None:
        """The first of those without any trial."""
        return next(iter(self._idle), None)

    @property
    def first(self) -> int | None:
        """The group that is served next; None if none waits."""
        return self.idle if self._idle else next(iter(self._others), None)

    def put(self, index: int, num_trials: int) -> None:
        """Enters a group that has room next to `num_trials` trials; a group that waits already keeps its
        place."""
        come, gone = (self._others, self._idle) if num_trials else (self._idle, self._others)
        gone.pop(index, None)
        come[index] = None

    def remove(self, index: int) -> None:
        """Removes a group that has no room."""
        self._idle.pop(index, None)
        self._others.pop(index, None)


class Groups:
    """All groups of a leg. The cost of an operation on one group does not depend on the number of groups."""

    def __init__(self, ledger: Ledger, world: World, setup: Setup, silence_seconds: float) -> None:
        """`setup` is the first message to a group, also to one that is started again."""
        self.ledger, self.world, self.setup = ledger, world, setup
        prepared = setup.config.search.prepared
        self.each = [Group(ranks, silence_seconds, prepared=prepared) for ranks in world.groups]
        self.block_seconds = block_seconds(len(self.each), silence_seconds)
        self.closing = False
        """The leg ends: nothing more is dispatched, and no group is started again."""
        self.last_idle = 0.0
        """Time in seconds at which a group last ended a trial or was lost."""
        self._in_vain = False
        """Whether the search found nothing new, and no group has ended a trial or was lost since then."""
        # Indexes of the groups' states, so that no question about all groups costs a look at each of them.
        self._alive = set(range(len(self.each)))
        self._at_work: set[int] = set()
        self._waiting = WaitingGroups()
        self._attention = AttentiveClock()
        self._just_heard: set[int] = set()
        """Groups that were heard since the last look at the clock."""
        self._silences = Deadlines(lambda index: self.each[index].overdue)
        self._rests = Deadlines(lambda index: self.each[index].rests_until)

    @property
    def alive(self) -> Collection[int]:
        """The groups that are not lost."""
        return self._alive

    @property
    def at_work(self) -> bool:
        """Whether some group has a trial."""
        return bool(self._at_work)

    @property
    def hungry(self) -> bool:
        """Whether some group waits for a trial, and the search may have one."""
        return bool(self._waiting) and not (self.closing or self._in_vain or self.ledger.jobs.exhausted)

    def say(self, indices: Collection[int], message: ToGroup) -> None:
        """Sends a message to some groups; to all of them as one message along the tree."""
        if len(indices) == len(self.each):
            self.world.send_all(message)
        else:
            for index in indices:
                self.world.send(index, message)

    def heard(self, index: int) -> None:
        """A group said something."""
        self.each[index].heard = self._attention.at(self.ledger.now)
        self._just_heard.add(index)

    def note(self, index: int) -> None:
        """Updates the indexes of groups; called after each change of a group."""
        group, now = self.each[index], self.ledger.now
        _in(self._alive, index, group.alive)
        _in(self._at_work, index, bool(group.assigned))
        self._silences.note(index)
        if group.rests_until > now:
            self._rests.note(index)
        if group.wants_more(now) and self.ledger.replay.leg.is_ready(index):
            self._waiting.put(index, len(group.assigned))
        else:
            self._waiting.remove(index)

    def serve(self, only_idle: bool) -> None:
        """Gives a trial to one group that has room for it, or to several while there are prepared ones.
        Raises Exhausted when the search finds nothing new and no trial is in flight: what is in flight may
        yet have children, so its end is waited for."""
        for index in self._rests.passed(self.ledger.now):
            self.note(index)
        for _ in range(FIRST_AT_A_TIME):
            free = self._waiting.idle if only_idle else self._waiting.first
            if free is not None and self.hungry:
                self._give(free)
            if free is None or not self.ledger.jobs.prepared:
                return

    def _give(self, index: int) -> None:
        """Dispatches the next trial of the search to a group: first in the journal, then by message."""
        try:
            job = self.ledger.jobs.next(index)
        except Exhausted:
            self._in_vain = True
            if not self.at_work:
                raise
            return
        assert job is not None, "there were trials left"
        left = self._seconds_left()
        if left is not None and left <= 0:  # the deadline passed while the job was proposed: none begins it
            return
        self.ledger.write(job)
        now = self._attention.at(self.ledger.now)
        self.each[index].assign(job, now, self.ledger.replay.leg.ceilings)
        self._just_heard.add(index)
        self.note(index)
        self.world.send(index, Assign(job.trial, job.attempt))

    def ended(self, index: int, trial: int, end: float) -> None:
        """A group has ended a trial, at `end`."""
        self.each[index].drop(trial, self.ledger.replay.leg.ceilings)
        self.last_idle, self._in_vain = max(self.last_idle, end), False

    def attentive_seconds(self) -> float:
        """The leg's time minus the time for which this process was held up and could not receive messages. To
        notice that it is held up, it must be called all the time."""
        now = self._attention.look(self.ledger.now)
        for index in self._just_heard:
            if self.each[index].heard > now:  # it was heard while this process was held up
                self.each[index].heard = now
                self._silences.note(index)
        self._just_heard.clear()
        return now

    def check_silence(self) -> None:
        """Loses the groups that were silent for longer than their work may take. Groups are told apart by
        when their own silence is over, so only those that are due are looked at."""
        now = self.attentive_seconds()
        for index in self._silences.passed(now):
            self.lose(index, f"was silent for {now - self.each[index].heard:.0f} s")

    def lose(self, index: int, reason: str) -> None:
        """Records the loss of a group, gives its trials to others, and restarts it if possible."""
        group = self.each[index]
        self.bury(index, reason)
        if not self.closing and not group.is_given_up and self.world.restart(index):
            group.alive = True
            self.note(index)
            self.world.send(index, self.setup)

    def release(self) -> None:
        """Starts the clock of all groups. They are served first in the order of their numbers, not in the
        order in which they became ready."""
        self._waiting = WaitingGroups()
        self.world.send_all(Release(self._seconds_left(), block_seconds=self.block_seconds))
        for index in sorted(self._alive):
            self.note(index)

    def observe(self) -> Observe:
        """The message that starts the recording on the hosts of all ranks."""
        leg, minutes = self.ledger.replay.leg, self.setup.config.limits.minutes
        return observed(list(leg.devices.values()), (leg.began.host, os.getpid()), minutes)

    def go_on(self, index: int) -> None:
        """Returns a restarted group, which is ready, to the span. It uses the threads and the step times that
        it had before the span, and measures nothing again."""
        leg = self.ledger.replay.leg
        self.world.send(index, self.observe())
        measured = {rank: leg.ceilings[rank] for rank in self.each[index].ranks if rank in leg.ceilings}
        threads = {str(rank): ceiling.threads for rank, ceiling in measured.items() if ceiling.threads}
        timed = {str(rank): ceiling.timed for rank, ceiling in measured.items() if ceiling.timed}
        leader = measured.get(self.each[index].ranks[0])
        steps, seed_steps = (leader.steps, leader.seed_steps) if leader else ({}, {})
        left = self._seconds_left()
        self.world.send(index, Release(left, threads, self.block_seconds, steps, seed_steps, timed))

    def bury_at_work(self, since: float, reason: str) -> None:
        """Gives up the groups at work that sent nothing since `since`, on the clock of
        `attentive_seconds`."""
        for index in sorted(self._at_work):
            if self.each[index].heard < since:
                self.bury(index, reason)
                self.each[index].late = True

    def bury(self, index: int, reason: str) -> None:
        """Records the loss of a group without a restart; other groups take over its trials."""
        self.ledger.write(GroupLost(index, reason))
        self.each[index].lose()
        self.note(index)
        self.last_idle, self._in_vain = self.ledger.now, False

    def _seconds_left(self) -> float | None:
        """Seconds to the deadline, below 0 after it; None without one."""
        deadline = self.ledger.replay.leg.deadline
        return None if deadline is None else deadline - self.ledger.now


def _in(indices: set[int], index: int, belongs: bool) -> None:
    """Adds an index to a set or removes it."""
    (indices.add if belongs else indices.discard)(index)


def observed(ranks: Sequence[Ready], master: tuple[str, int], minutes: float) -> Observe:
    """The message that starts the recording. `master`: host and process of the master. `minutes`: the length
    of the run, 0 without a limit. Each host's recorder gets the processes that belong to the run, so that
    all others count as other programs."""
    host, process = master
    processes: dict[str, tuple[int, ...]] = {host: (process,)}
    for ready in ranks:
        processes[ready.host] = (*processes.get(ready.host, ()), ready.pid)
    share = 60 * minutes * USE_SHARE or USE_SECONDS
    return Observe(devices_by_host(ranks), processes, min(USE_SECONDS, max(LEAST_USE_SECONDS, share)))


def devices_by_host(ranks: Iterable[Ready]) -> dict[str, tuple[str, ...]]:
    """The identities of the devices that the ranks of each host have."""
    devices: dict[str, tuple[str, ...]] = {}
    for ready in ranks:
        known = devices.get(ready.host, ())
        devices[ready.host] = known if ready.device_id in ("", *known) else (*known, ready.device_id)
    return devices
