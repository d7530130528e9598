"""The messages of the groups: each becomes one event of the journal, and what follows from it is done."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace

from aiperf.errors import WorldError
from aiperf.journal import events
from aiperf.journal.attempts import Attempt
from aiperf.journal.compression import shortest_line
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.proposing.shared_failure import Failure, SharedFailure
from aiperf.ranks.world import Gone
from aiperf.run.groups import Groups
from aiperf.run.ledger import Ledger
from aiperf.run.notarisation import Notarisation
from aiperf.wire import messages, reports
from aiperf.wire.trial import State
from nas.frozen import frozen

TICK_SECONDS = 0.25
"""Maximum wait for a message in seconds, and so the interval at which limits, silence and the display are
checked. Each of these is a matter of seconds; a shorter wait would take time from a trial on the same CPU."""

QUIET_LINE_SECONDS = 5.0
"""Time in seconds without a line after which the master writes a beat. This is half of
`AFTER_LAST_LINE_SECONDS`: a leg that was killed ends ten seconds after its last line."""

Watch = Callable[[Replay, float], None]


@frozen
class Audience:
    """Callbacks through which the master informs the user."""

    watch: Watch
    """Called a few times per second with the run so far and the leg's time in seconds."""
    say: Callable[[str], None]
    """Called with a note for the user."""


class MessageHandler:
    """Receives the messages of all groups, one at a time."""

    def __init__(
        self, ledger: Ledger, files: RunFiles, groups: Groups, audience: Audience, notarisation: Notarisation
    ) -> None:
        """A run that already has a complete trial cannot fail for one shared reason."""
        self.ledger, self.files, self.groups, self.audience = ledger, files, groups, audience
        self.replay, self.world, self._notarisation = ledger.replay, groups.world, notarisation
        completed = any(trial.state is State.COMPLETE for trial in self.replay.trials.values())
        self._failures = SharedFailure(excluded=completed)
        self.shared_failure = ""
        """The reason for which every trial fails, once that is certain."""
        self._num_ranks = sum(map(len, groups.world.groups))
        self._fabric_meetings: dict[int, messages.FabricMeeting] = {}
        self._fabric_met = False
        """Whether the ranks know where to meet to measure the fabric, or that they do not."""
        self.fabric_parts: dict[int, reports.FabricPart] = {}
        """What each rank measured of the fabric."""

    def turn(self, on_loss: Callable[[int, str], None], seconds: float) -> int | None:
        """Waits at most `seconds` for one message and handles it; returns the group that sent it. `on_loss`
        is called with a group and a reason, and decides what a loss means now."""
        index = None
        received = self.world.receive(seconds)
        if received is not None:
            index, message = received
            if not isinstance(message, reports.HostUse):  # which its recorder measures, also if it hangs
                self.groups.heard(index)
            if isinstance(message, Gone):
                if self.groups.each[index].alive:  # its other ranks may follow; it is lost once
                    on_loss(index, message.reason)
                self.groups.each[index].late = False
            elif self._expects(index, message):
                self._hear(index, message)
                self.groups.note(index)
        if self.ledger.quiet_seconds > QUIET_LINE_SECONDS:
            self.ledger.write(events.Beat())
        self.audience.watch(self.replay, self.ledger.now)
        return index

    def _expects(self, index: int, message: reports.FromGroup) -> bool:
        """False for a message about an attempt that has been taken from the group since it was sent, and for
        any other that comes too late. A group that was lost may have sent messages before it heard of
        that."""
        if isinstance(message, messages.Validated):
            trial, attempt = message.segment.trial, message.segment.attempt
        elif isinstance(message, messages.Steps):
            trial, attempt = message.block.trial, message.block.attempt
        elif isinstance(message, reports.Started | reports.Fallback | messages.NextWanted | reports.Finished):
            trial, attempt = message.trial, message.attempt
        elif isinstance(message, reports.DeviceCheck):  # one that was asked for before the span is late
            return self.replay.leg.released is None or self.replay.leg.ended is not None
        else:
            return True
        return self.groups.each[index].has(trial, attempt)

    def _hear(self, index: int, message: reports.FromGroup) -> None:
        """Writes the event that a message stands for. Ends are those of the work, not of the news of it: the
        age of a message is subtracted."""
        now, group = self.ledger.now, self.groups.each[index]
        if isinstance(message, messages.Meeting):
            self.world.send(index, messages.Join(message.host, message.port, secrets.token_hex(16)))
        elif isinstance(message, messages.FabricMeeting):
            self._fabric_meetings[message.rank] = message
            if len(self._fabric_meetings) == self._num_ranks:
                first = self._fabric_meetings[min(self._fabric_meetings)]
                self.join_fabric(first.host, first.port)
        elif isinstance(message, reports.FabricPart):
            self.fabric_parts[message.rank] = message
        elif isinstance(message, reports.Ready):
            self._ready(index, message)
        elif isinstance(message, messages.Refused):
            group.refused = f"rank {message.rank} on {message.host}: {message.reason}"
        elif isinstance(message, reports.Ceiling):
            self.ledger.write(events.CeilingMeasured(message))
        elif isinstance(message, reports.Control):
            self.ledger.write(events.ControlMeasured(message))
        elif isinstance(message, reports.DeviceCheck):
            self.ledger.write(events.DeviceChecked(message))
        elif isinstance(message, reports.HostUse):
            end = now - message.age_seconds
            self.ledger.write(events.HostUsed(replace(message, age_seconds=0.0), end))
        elif isinstance(message, reports.Started):
            self.ledger.write(events.Began(message, now))
            group.await_first_step(self.replay.leg.ceilings)
        elif isinstance(message, reports.Fallback):
            self.ledger.write(events.FellBack(message))
            self.audience.say(
                f"trial {message.trial}: no {message.engine} steps, eager ones instead: {message.reason}"
            )
        elif isinstance(message, messages.Steps):
            group.await_block(message.block.seconds)
            self.ledger.write(events.Stepped(message.block, group.ended(now - message.age_seconds)))
        elif isinstance(message, messages.Validated):
            end = group.ended(now - message.age_seconds)
            self.ledger.write(events.Closed(message.segment, end, message.logs))
            group.losses = 0
        elif isinstance(message, messages.NextWanted):
            group.wanting = message.trial, message.attempt
        elif isinstance(message, reports.Finished):
            self._finish(index, message, group.ended(now - message.age_seconds))
        elif isinstance(message, reports.Evaluated):
            self.ledger.write(events.Tested(message))

    def join_fabric(self, host: str, port: int) -> None:
        """Lets the ranks measure the fabric, which meet at this address; without one they do not. A group
        that was started again does not take part, and expects no such message."""
        if not self._fabric_met:
            self._fabric_met = True
            waiting = [index for index, group in enumerate(self.groups.each) if not group.losses]
            self.groups.say(waiting, messages.JoinFabric(host, port, secrets.token_hex(16)))

    def _ready(self, index: int, ready: reports.Ready) -> None:
        """Takes a rank that is ready. Raises WorldError if its work would not be comparable."""
        leg = self.replay.leg
        clock = self.world.clock_of(ready.rank)
        self.ledger.write(shortest_line(leg.ready_like(ready.host), index, ready, clock))
        refuse_difference(ready, leg.ranks[0].ready)
        if leg.released is not None and leg.is_ready(index):  # it was lost in between
            self.groups.go_on(index)

    def _finish(self, index: int, message: reports.Finished, end: float) -> None:
        """Takes the end of a trial, which makes room in its group and may make weights superfluous."""
        group = self.groups.each[index]
        self.groups.ended(index, message.trial, end)
        if message.state is State.WAITING:  # the trial never began, so no end is recorded; the group closes
            group.closing = True
            return
        # The age of the message is already in `end`; the journal does not state it twice.
        self.ledger.write(events.Ended(replace(message, age_seconds=0.0), end))
        self._notarisation.ended(self._attempt(message.trial))
        best = self.replay.best.number if self.replay.best else None  # which is tested in the end
        self.files.drop_weights(self.ledger.jobs.unneeded(best))
        group.rest_after(message.state, self.ledger.now)
        self._look_for_shared_failure(index, message)

    def _look_for_shared_failure(self, index: int, message: reports.Finished) -> None:
        """Takes a trial that ended into account for `shared_failure`. One that is repeated, as with half the
        batch, has not failed for good."""
        failures = self._failures
        failures.excluded = failures.excluded or message.state is State.COMPLETE
        is_last = message.state is State.FAILED and not self.ledger.jobs.repeats(message.trial)
        if failures.excluded or not is_last:
            return
        attempt, alive = self._attempt(message.trial), self.groups.alive
        key, segments = attempt.dispatched.graph_key, attempt.num_closed
        failures.failed(Failure(key, index, self._hosts([index]), message.reason, segments))
        open_trials = [job.trial.number for group in self.groups.each for job in group.assigned]
        most = max((self._attempt(number).num_closed for number in open_trials), default=0)
        if failures.first and failures.ends_run(len(alive), len(self._hosts(alive)), most):
            self.shared_failure = failures.first.reason

    def _attempt(self, trial: int) -> Attempt:
        """The last attempt of a trial."""
        return self.replay.trials[trial].attempts[-1]

    def _hosts(self, groups: Iterable[int]) -> set[str]:
        """The hosts of the ranks of these groups that were ready."""
        devices = self.replay.leg.devices
        ranks = (rank for index in groups for rank in self.groups.each[index].ranks)
        return {devices[rank].host for rank in ranks if rank in devices}


def refuse_difference(ready: reports.Ready, first: reports.Ready) -> None:
    """Refuses a rank whose code, data or initial weights differ from the first rank's, since their work would
    not be comparable."""
    for what in ("code_hash", "data", "initial_weights"):
        if getattr(ready, what) != getattr(first, what):
            raise WorldError(
                f"rank {ready.rank} on {ready.host} and rank {first.rank} on {first.host} differ in "
                f"{what.replace('_', ' ')}; use the same installation and data on all nodes"
            )
