"""The master: it dispatches trials to groups, receives their messages, and writes the journal.

It is driven by messages, one at a time. Everything that can be derived is read from the replay of the
journal as it is being written. It touches no device and holds no weights.

Long, and one file, because the phases of a leg and the messages that drive them share one state.
"""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from aiperf.errors import JournalError, StoppedEarly, WorldError
from aiperf.few_collections import few_collections
from aiperf.files import RunFiles
from aiperf.hardware.bound import without_bound
from aiperf.journal import events
from aiperf.journal.attempts import Attempt
from aiperf.journal.compression import shortest_line
from aiperf.journal.replay import Replay
from aiperf.journal.spot_checks import chosen_in, ending_of
from aiperf.names import salt_of
from aiperf.os_error import unwritable
from aiperf.proposing.plan import measuring_seconds
from aiperf.proposing.shared_failure import Failure, SharedFailure
from aiperf.ranks.world import Gone, World
from aiperf.rules.eligibility import refuse_unrankable
from aiperf.rules.ending import ERROR, EVERY_GROUP_LOST, EVERY_TRIAL_FAILED
from aiperf.rules.participants import INITIALISATION_SECONDS
from aiperf.run import before_release
from aiperf.run.groups import Groups
from aiperf.run.ledger import Ledger
from aiperf.run.notarisation import Notarisation
from aiperf.trial import Segment, State, StepBlock
from aiperf.wire import messages
from nas.search import Exhausted

TICK_SECONDS = 0.25
"""Maximum wait for a message in seconds, and so the interval at which limits, silence and the display are
checked. Each of these is a matter of seconds; a shorter wait would take time from a trial on the same CPU."""

QUIET_LINE_SECONDS = 5.0
"""Time in seconds without a line after which the master writes a beat. This is half of
`AFTER_LAST_LINE_SECONDS`: a leg that was killed ends ten seconds after its last line."""

READY_SECONDS = INITIALISATION_SECONDS
"""Time limit in seconds for each step of the initialisation, and for a group that may have to be restarted
for the test. A run that took longer would be INVALID, so there is no point in waiting longer."""

EARLY_RESTARTS = 1
"""Number of times that a group is restarted before the clock starts. A process may be killed by accident; but
if a library or a driver does not work, the user should see the reason soon."""

PREPARING_SECONDS = 300.0
"""Time limit in seconds for the proposal of the first candidates before the clock starts, which is enough for
a hundred thousand groups. Those that are left are proposed afterwards."""

STOP_SECONDS = 30.0
"""Time limit in seconds for the groups to stop, after a request and after the deadline. They close the
running trial with a validation, which usually lasts seconds."""

Watch = Callable[[Replay, float], None]


@dataclass(frozen=True)
class Audience:
    """Callbacks through which the master informs the user."""

    watch: Watch
    """Called a few times per second with the run so far and the leg's time in seconds."""
    say: Callable[[str], None]
    """Called with a note for the user."""


class Master:
    """One leg of a run: from initialisation to the last test."""

    def __init__(
        self, ledger: Ledger, files: RunFiles, world: World, audience: Audience, silence_seconds: float = 60.0
    ) -> None:
        """A group that is silent for `silence_seconds` is lost, unless its work may take longer."""
        self.ledger, self.files, self.world, self.audience = ledger, files, world, audience
        self.replay, opened = ledger.replay, ledger.replay.opened
        self.config = opened.config
        directory, probe = str(files.directory.absolute()), os.urandom(8).hex()
        salt = salt_of(files.private, files.journal)
        self.setup = messages.Setup(
            opened.config, opened.seed_graph, directory, probe, self.replay.num_legs, salt
        )
        self.groups = Groups(ledger, world, self.setup, silence_seconds)
        self.released = False
        """Whether the clock of this leg was started."""
        completed = any(trial.state is State.COMPLETE for trial in self.replay.trials.values())
        self._failures = SharedFailure(excluded=completed)
        self._shared = ""
        """The reason for which every trial fails, once that is certain."""
        self._stop_asked = ""
        self._notarisation: Notarisation | None = None
        if self.config.notary:
            leg, journal = self.replay.num_legs, ledger.journal
            earlier = chosen_in(files, self.replay)
            self._notarisation = Notarisation(
                files, leg, lambda: ledger.head, journal.duplicate, audience.say, earlier
            )
        self._closing = ""
        self._closing_since = 0.0

    def stop(self, reason: str) -> None:
        """Asks for a clean end; may be called from a signal handler."""
        self._stop_asked = self._stop_asked or reason

    def run(self, started: str, command: tuple[str, ...], backend: str = "ddp", host: str = "") -> None:
        """Runs the leg to its end. Raises WorldError if the groups cannot be initialised; the journal then
        records the reason."""
        with few_collections():
            self._run(started, command, backend, host)

    def _run(self, started: str, command: tuple[str, ...], backend: str, host: str) -> None:
        leg, groups = self.replay.num_legs, self.world.groups
        self.ledger.write(events.LegBegan(leg, started, command, groups, backend, host))
        self._sweep()
        try:
            with self._probe():
                self._receive_nonce()
                self._initialise()
                self._release()
                while not self._over():
                    # Messages that have arrived are handled before the search proposes a trial, which takes a
                    # thousand times as long as a message; only a group without any trial is served at once.
                    heard = self._turn(self.groups.lose, 0.0 if self.groups.hungry else TICK_SECONDS)
                    self._check_limits()
                    self._hand_over()
                    if not self._closing:
                        self.groups.check_silence()
                    elif heard is None:  # no message is waiting, so no group is lost that answered in time
                        self._lose_late()
                    self._serve(only_idle=heard is not None)
        except Exception as error:
            self.ledger.write(events.LegEnded(f"{ERROR}{error}", self.ledger.now))
            self._hand_over_last()
            raise
        self.ledger.write(events.LegEnded(self._closing, self._end_of_span()))
        self._hand_over_last()
        self._sweep()
        if self._has_result:
            self._test()
            self._hand_over_last()
            self._sweep()
        if self._notarisation is not None:
            self._notarisation.settle(lambda: bool(self._stop_asked))

    def _receive_nonce(self) -> None:
        """Before anything is measured, while the groups start."""
        if self._notarisation is not None:
            answer = self._notarisation.nonce(lambda: bool(self._stop_asked))
            if answer is not None:
                self.ledger.write(events.NonceGiven(answer.nonce, answer.signature))

    def _hand_over(self) -> None:
        if self._notarisation is not None:
            limit = self.config.limits.minutes * 60
            self._notarisation.tick(self.ledger.now, limit or None)

    def _hand_over_last(self) -> None:
        if self._notarisation is not None:
            self._notarisation.last()

    @contextlib.contextmanager
    def _probe(self) -> Iterator[None]:
        """The file by which a rank sees whether it shares the run directory."""
        probe = self.files.probe
        try:
            probe.write_text(self.setup.probe, encoding="utf-8")
        except OSError as error:
            probe.unlink(missing_ok=True)
            raise JournalError(unwritable(error, probe)) from None
        try:
            yield
        finally:
            probe.unlink(missing_ok=True)

    def _initialise(self) -> None:
        """Initialises all groups, lets them measure at the same time, and then proposes their first trials. A
        group that is lost is restarted and repeats what it had done."""
        leg, seconds = self.replay.leg, measuring_seconds(self.config.limits) / 2
        num_ranks = sum(len(group.ranks) for group in self.groups.each)
        self.groups.say_all(self.setup)
        prepared = False
        while not prepared:
            self._await(leg.is_ready)
            if len(leg.ceilings) < num_ranks:
                observe = self._observed(list(leg.devices.values()))
                self._measure(leg.ceilings, observe, messages.MeasureCeiling(seconds))
            elif len(leg.controls) < num_ranks:
                self._measure(leg.controls, messages.MeasureControl(seconds))
            else:
                prepared = self._prepared(leg.controls)
        gc.freeze()  # the networks of the first trials stay as long as these: see `few_collections`

    def _prepared(self, controls: Collection[int]) -> bool:
        """Proposes the first trials. They are dispatched after the clock has started, and until then no group
        hears of them. False if a group was lost meanwhile, so that its `controls` are missing."""
        num_ranks, until = len(controls), self.ledger.now + PREPARING_SECONDS
        while len(controls) == num_ranks and self.ledger.now < until and self.ledger.jobs.prepare():
            self._turn(self._lose_early, 0.0)
            if self._stop_asked:
                raise StoppedEarly(self._stop_asked)
        return len(controls) == num_ranks

    def _observed(self, ready: Sequence[messages.Ready]) -> messages.Observe:
        """The message that starts the recording, once all ranks have passed the checks. Raises WorldError if
        one does not."""
        declared = self.config.training.format
        before_release.refuse_idle_devices(ready)
        measured = self.replay.opened.origin is events.Origin.MEASURED
        refuse_unrankable(self.config, ready[0].data, without_bound(ready, declared) if measured else ())
        if not self.replay.leg.losses:
            for text in before_release.notes(self.files.directory, declared, ready):
                self.audience.say(text)
        before_release.refuse_other_formats(declared, ready)
        before_release.refuse_other_clocks(self.replay.ranks)
        return before_release.observed(ready, self.groups.master, self.config.limits.minutes)

    def _measure(self, measured: Mapping[int, object], *asked: messages.ToGroup) -> None:
        """Sends `asked` to the groups that have not measured yet, and returns when each has measured or was
        lost."""
        losses = [group.losses for group in self.groups.each]

        def reached(index: int) -> bool:
            group = self.groups.each[index]
            return group.losses > losses[index] or all(rank in measured for rank in group.ranks)

        lacking = [index for index in range(len(losses)) if not reached(index)]
        for message in asked:
            self.groups.say(lacking, message)
        self._await(reached)

    def _await(self, reached: Callable[[int], bool]) -> None:
        """Handles messages until `reached` is true of every group. Only the group of the last message can
        have changed, so only that one is checked again. Raises StoppedEarly, or NotReady after
        READY_SECONDS."""
        until = self.ledger.now + READY_SECONDS
        waited = {index for index in range(len(self.groups.each)) if not reached(index)}
        while waited:
            index = self._turn(self._lose_early, TICK_SECONDS)
            if index is not None:
                (waited.discard if reached(index) else waited.add)(index)
            if self._stop_asked:
                raise StoppedEarly(self._stop_asked)
            if self.ledger.now > until:
                ready = [event.ready for event in self.replay.ranks]
                raise before_release.not_in_time(READY_SECONDS, self.world.groups, ready)

    def _lose_early(self, index: int, reason: str) -> None:
        """Restarts a group that is lost before the clock starts, once: a fault of its node or device will
        show again, and then the run is refused."""
        group = self.groups.each[index]
        if group.refused:
            raise WorldError(group.refused)
        lost = before_release.lost(index, self.replay.leg.is_ready(index), reason)
        if group.losses >= EARLY_RESTARTS:
            raise lost
        self.groups.lose(index, reason)
        if not group.alive:
            raise lost
        self.audience.say(f"{lost}; it is started again")

    def _release(self) -> None:
        limit = self.config.limits.minutes * 60
        left = max(0.0, limit - self.replay.span_seconds) if limit else None
        now = self.ledger.now  # the span begins with this line, and must not be shorter
        deadline = None if left is None else now + left
        self.ledger.write(events.Released(deadline), now)
        self.released = True
        self.groups.release()

    def _serve(self, only_idle: bool) -> None:
        try:
            self.groups.serve(only_idle)
        except Exhausted as error:
            self._close(f"exhausted: {error}")

    def _check_limits(self) -> None:
        if self._closing:
            return
        limits, best, deadline = self.config.limits, self.replay.best, self.replay.leg.deadline
        if self._stop_asked:
            self._close(self._stop_asked)
        elif deadline is not None and self.ledger.now >= deadline:
            self._close("deadline")
        elif limits.target_error and best and best.error is not None and best.error <= limits.target_error:
            self._close("target")
        elif not self.groups.alive:
            self._close(f"{ERROR}{EVERY_GROUP_LOST}")
        elif self._shared:
            self._close(f"{ERROR}{EVERY_TRIAL_FAILED}: {self._shared}")
        elif self.ledger.jobs.exhausted and not self.groups.at_work:
            self._close("trials")

    def _close(self, reason: str) -> None:
        self._closing_since = self.groups.attentive_seconds()
        self._closing, self.groups.closing = reason, True
        if reason != "deadline":  # which the groups keep by themselves
            self.groups.say_all(messages.Stop())

    def _lose_late(self) -> None:
        """Gives up the groups whose time to stop is over. A group that still sends messages, as in a long
        validation, is waited for after the deadline, because the span is over, and if it is the only group.
        After any other stop it is given up too: `rules.planned` accepts trials that a stop has ended only in
        the last minute of a leg, so to wait for one group would turn those of the others into a
        contradiction; nor does a scheduler wait."""
        most = STOP_SECONDS + self.groups.block_seconds  # a stop is seen when a block of steps is done
        since = self.groups.attentive_seconds() - most
        if self._closing_since < since:
            alone, asked = len(self.groups.each) == 1, self._stop_asked
            waits = asked != events.TERMINATED and (alone or (self._closing == "deadline" and not asked))
            self.groups.bury_at_work(since if waits else inf, f"did not stop within {most:.0f} s")

    def _over(self) -> bool:
        return bool(self._closing) and not self.groups.at_work

    @property
    def _has_result(self) -> bool:
        """Whether the best network is the result of the run. A run that the scheduler stopped is continued,
        and the test examples are used once; a trial that was cut off before it failed, too, shows nothing."""
        every_trial_failed = self._closing.startswith(f"{ERROR}{EVERY_TRIAL_FAILED}")
        return self._closing != events.TERMINATED and not every_trial_failed

    def _end_of_span(self) -> float:
        """The end of the span: the deadline if it was reached, whatever was credited last; otherwise the time
        at which the last group became idle."""
        deadline = self.replay.leg.deadline
        if self._closing == "deadline" and deadline is not None:
            return deadline
        return self.groups.last_idle or self.ledger.now

    def _test(self) -> None:
        """Has the best network evaluated on the test examples, once, by any group that is left."""
        best, leg = self.replay.best, self.replay.leg
        # Groups that are ready come first: one that is being restarted may never answer, if the link to it is
        # cut. Groups that did not stop in time come last.
        ready_first = sorted(
            enumerate(self.groups.each), key=lambda each: (each[1].late, not leg.is_ready(each[0]))
        )
        for index, group in ready_first:
            if best is None or self.replay.tested is not None:
                return
            if group.alive or group.late:
                self.world.send(index, messages.Evaluate(best.trial.number))
            until = self.ledger.now + READY_SECONDS
            while self.replay.tested is None and self.ledger.now < until and (group.alive or group.late):
                self._turn(self.groups.bury, TICK_SECONDS)

    # Messages

    def _turn(self, on_loss: Callable[[int, str], None], seconds: float) -> int | None:
        """Waits at most `seconds` for one message and handles it; returns the group that sent it."""
        index = None
        received = self.world.receive(seconds)
        if received is not None:
            index, message = received
            if not isinstance(message, messages.HostUse):  # which its recorder measures, also if it hangs
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

    def _expects(self, index: int, message: messages.FromGroup) -> bool:
        """False for a message about an attempt that has been taken from the group since it was sent."""
        told: object = message
        if isinstance(message, messages.Validated):
            told = message.segment
        elif isinstance(message, messages.Steps):
            told = message.block
        if not isinstance(told, (messages.Started, messages.Fallback, messages.Finished, Segment, StepBlock)):
            return True
        return self.groups.each[index].has(told.trial, told.attempt)

    def _hear(self, index: int, message: messages.FromGroup) -> None:
        now, group = self.ledger.now, self.groups.each[index]
        if isinstance(message, messages.Meeting):
            self.world.send(index, messages.Join(message.host, message.port, secrets.token_hex(16)))
        elif isinstance(message, messages.Ready):
            self._ready(index, message)
        elif isinstance(message, messages.Refused):
            group.refused = f"rank {message.rank} on {message.host}: {message.reason}"
        elif isinstance(message, messages.Ceiling):
            self.ledger.write(events.CeilingMeasured(message))
        elif isinstance(message, messages.Control):
            self.ledger.write(events.ControlMeasured(message))
        elif isinstance(message, messages.HostUse):
            end = now - message.age_seconds
            self.ledger.write(events.HostUsed(replace(message, age_seconds=0.0), end))
        elif isinstance(message, messages.Started):
            self.ledger.write(events.Began(message, now))
            group.await_first_step(self.replay.leg.ceilings)
        elif isinstance(message, messages.Fallback):
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
        elif isinstance(message, messages.Finished):
            self._finish(index, message, group.ended(now - message.age_seconds))
        elif isinstance(message, messages.Evaluated):
            self.ledger.write(events.Tested(message))

    def _ready(self, index: int, ready: messages.Ready) -> None:
        leg = self.replay.leg
        clock = self.world.clock_of(ready.rank)
        self.ledger.write(shortest_line(leg.ready_like(ready.host), index, ready, clock))
        before_release.refuse_difference(ready, leg.ranks[0].ready)
        if leg.released is not None and leg.is_ready(index):  # it was lost in between
            self.groups.go_on(index)

    def _finish(self, index: int, message: messages.Finished, end: float) -> None:
        group = self.groups.each[index]
        self.groups.ended(index, message.trial, end)
        if message.state is State.WAITING:  # the trial never began, so no end is recorded; the group closes
            group.closing = True
            return
        # The age of the message is already in `end`; the journal does not state it twice.
        self.ledger.write(events.Ended(replace(message, age_seconds=0.0), end))
        self._keep_for_spot_check(message.trial)
        best = self.replay.best.number if self.replay.best else None  # which is tested in the end
        self.files.drop_weights(self.ledger.jobs.unneeded(best))
        group.rest_after(message.state, self.ledger.now)
        self._look_for_shared_failure(index, message)

    def _keep_for_spot_check(self, trial: int) -> None:
        ending = ending_of(self._attempt(trial))
        if self._notarisation is not None and ending is not None:
            self._notarisation.ended(ending)

    def _look_for_shared_failure(self, index: int, message: messages.Finished) -> None:
        failures = self._failures
        failures.excluded = failures.excluded or message.state is State.COMPLETE
        is_last = message.state is State.FAILED and not self.ledger.jobs.repeats(message.trial)
        if failures.excluded or not is_last:
            return
        attempt, alive = self._attempt(message.trial), self.groups.alive
        key, segments = attempt.dispatched.graph_key, len(attempt.validations)
        failures.failed(Failure(key, index, self._hosts([index]), message.reason, segments))
        open_trials = [job.trial.number for group in self.groups.each for job in group.assigned]
        most = max((len(self._attempt(number).validations) for number in open_trials), default=0)
        if failures.first and failures.ends_run(len(alive), len(self._hosts(alive)), most):
            self._shared = failures.first.reason

    def _attempt(self, trial: int) -> Attempt:
        return self.replay.trials[trial].attempts[-1]

    def _hosts(self, groups: Iterable[int]) -> set[str]:
        devices = self.replay.leg.devices
        ranks = (rank for index in groups for rank in self.groups.each[index].ranks)
        return {devices[rank].host for rank in ranks if rank in devices}

    def _sweep(self) -> None:
        """Removes all weights that are not needed, including those that a group wrote after it had been given
        up."""
        best = {self.replay.best.number} if self.replay.best else set()
        self.files.drop_weights_but(self.ledger.jobs.needed() | best)
