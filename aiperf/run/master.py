"""The master: one leg of a run, from the initialisation of the groups to the test of the best network.

It is driven by messages, one at a time (`handler`). Everything that can be derived is read from the replay of
the journal as it is being written. It touches no device and holds no weights.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

from aiperf.errors import JournalError
from aiperf.journal import events
from aiperf.journal.names import salt_of
from aiperf.journal.run_files import RunFiles
from aiperf.journal.spot_checks import chosen_in
from aiperf.os_error import unwritable
from aiperf.ranks.world import World
from aiperf.rules.ending import ERROR, EVERY_GROUP_LOST, EVERY_TRIAL_FAILED
from aiperf.run.device_checks import END_SECONDS, check_devices, deviating_note
from aiperf.run.groups import Groups
from aiperf.run.handler import TICK_SECONDS, Audience, MessageHandler
from aiperf.run.initialisation import READY_SECONDS, Initialisation
from aiperf.run.ledger import Ledger
from aiperf.run.notarisation import Notarisation
from aiperf.score.deviation import at_end
from aiperf.wire.messages import Evaluate, Setup, Stop
from nas.search import Exhausted

STOP_SECONDS = 30.0
"""Time limit in seconds for the groups to stop, after a request and after the deadline. They close the
running trial with a validation, which usually lasts seconds."""
SETTLED = (100_000, 50, 1000)
"""Thresholds of Python's cyclic garbage collector. A master keeps its trials and their networks, millions of
objects, and makes few cycles. With the default thresholds, collections took a third of the time of a proposal
with 4,096 groups (docs/scaling.md)."""


class Master:
    """One leg of a run."""

    def __init__(
        self, ledger: Ledger, files: RunFiles, world: World, audience: Audience, silence_seconds: float = 60.0
    ) -> None:
        """A group that is silent for `silence_seconds` is lost, unless its work may take longer."""
        self.ledger, self.files, self.world = ledger, files, world
        self.replay, opened = ledger.replay, ledger.replay.opened
        self.config, leg = opened.config, ledger.replay.num_legs
        directory, probe = str(files.directory.absolute()), os.urandom(8).hex()
        salt = salt_of(files.private, files.journal)
        self.setup = Setup(self.config, opened.seed_graph, directory, probe, leg, salt)
        self.groups = Groups(ledger, world, self.setup, silence_seconds)
        self.notarisation = Notarisation(
            files,
            leg,
            lambda: ledger.head,
            ledger.journal.duplicate,
            audience.say,
            chosen_in(files, self.replay) if self.config.notary else (),
        )
        self.handler = MessageHandler(ledger, files, self.groups, audience, self.notarisation)
        self.released = False
        """Whether the clock of this leg was started."""
        self._stop_request = ""
        self._closing = ""
        """Why the leg ends; empty until it does."""
        self._closing_since = 0.0

    def stop(self, reason: str) -> None:
        """Asks for a clean end; may be called from a signal handler. The first reason counts."""
        self._stop_request = self._stop_request or reason

    def run(self, started: str, command: tuple[str, ...], backend: str = "ddp", host: str = "") -> None:
        """Runs the leg to its end. Raises WorldError if the groups cannot be initialised; the journal then
        records the reason."""
        with few_collections():
            self._run(started, command, backend, host)

    def _run(self, started: str, command: tuple[str, ...], backend: str, host: str) -> None:
        """The leg in the order of its lines: start, initialisation, release, span, end, device check,
        test."""
        leg, groups = self.replay.num_legs, self.world.groups
        self.ledger.write(events.LegBegan(leg, started, command, groups, backend, host))
        self._sweep()
        try:
            with self._probe():
                self._receive_nonce()
                Initialisation(self.handler, self._stop_reason).run()
                self._release()
                while not self._over():
                    # Messages that have arrived are handled before the search proposes a trial, which takes a
                    # thousand times as long as a message; only a group without any trial is served at once.
                    heard = self.handler.turn(self.groups.lose, 0.0 if self.groups.hungry else TICK_SECONDS)
                    self._check_limits()
                    self._hand_over_head()
                    if not self._closing:
                        self.groups.check_silence()
                    else:
                        self._lose_late()
                    self._serve(only_idle=heard is not None)
        except Exception as error:
            self.ledger.write(events.LegEnded(f"{ERROR}{error}", self.ledger.now))
            self.notarisation.last()
            raise
        self.ledger.write(events.LegEnded(self._closing, self._end_of_span()))
        self.notarisation.last()
        self._sweep()
        if self._has_result:
            self._check_devices()
            self._test()
            self.notarisation.last()
            self._sweep()
        self.notarisation.settle(self._stop_reason)

    def _stop_reason(self) -> str:
        """Why the user or the scheduler wants the run to end; empty if nobody does."""
        return self._stop_request

    def _receive_nonce(self) -> None:
        """Records the notary's random number, before anything is measured, so that no later line can have
        been made before it. The groups start meanwhile."""
        answer = self.notarisation.nonce(self._stop_reason) if self.config.notary else None
        if answer is not None:
            self.ledger.write(events.NonceGiven(answer.nonce, answer.signature))

    def _hand_over_head(self) -> None:
        """Gives the state of the journal to the notary, from time to time."""
        self.notarisation.tick(self.ledger.now, self.config.limits.minutes * 60 or None)

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

    def _release(self) -> None:
        """Starts the clock. A further leg has what is left of the span."""
        limit = self.config.limits.minutes * 60
        left = max(0.0, limit - self.replay.span_seconds) if limit else None
        now = self.ledger.now  # the span begins with this line, and must not be shorter
        deadline = None if left is None else now + left
        self.ledger.write(events.Released(deadline), now)
        self.released = True
        self.groups.release()

    def _serve(self, only_idle: bool) -> None:
        """Dispatches a trial, if the search has one."""
        try:
            self.groups.serve(only_idle)
        except Exhausted as error:
            self._close(f"exhausted: {error}")

    def _check_limits(self) -> None:
        """Ends the leg if one of its limits is reached, or nothing more can be done."""
        if self._closing:
            return
        limits, best, deadline = self.config.limits, self.replay.best, self.replay.leg.deadline
        if self._stop_request:
            self._close(self._stop_request)
        elif deadline is not None and self.ledger.now >= deadline:
            self._close("deadline")
        elif limits.target_error and best and best.error is not None and best.error <= limits.target_error:
            self._close("target")
        elif not self.groups.alive:
            self._close(f"{ERROR}{EVERY_GROUP_LOST}")
        elif self.handler.shared_failure:
            self._close(f"{ERROR}{EVERY_TRIAL_FAILED}: {self.handler.shared_failure}")
        elif self.ledger.jobs.exhausted and not self.groups.at_work:
            self._close("trials")

    def _close(self, reason: str) -> None:
        """Begins the end of the leg: no trial is dispatched any more, and the groups close theirs. The time
        for groups to stop counts from here."""
        self._closing_since = self.groups.attentive_seconds()
        self._closing, self.groups.closing = reason, True
        if reason != "deadline":  # which the groups keep by themselves
            self.world.send_all(Stop())

    def _lose_late(self) -> None:
        """Gives up the groups whose time to stop is over. A group that still sends messages, as in a long
        validation, is waited for after the deadline, because the span is over, and if it is the only group.
        After any other stop it is given up too: the rule `examples` accepts trials that a stop has ended only
        in the last minute of a leg, so to wait for one group would turn those of the others into a
        contradiction; nor does a scheduler wait."""
        most = STOP_SECONDS + self.groups.block_seconds  # a stop is seen when a block of steps is done
        since = self.groups.attentive_seconds() - most
        if self._closing_since < since:
            # A group may have answered in time, so what waits is handled first. To wait for a time without
            # messages would be in vain: the hosts of a large run report all the time.
            while self.handler.turn(self.groups.lose, 0.0) is not None:
                pass
            alone, request = len(self.groups.each) == 1, self._stop_request
            waits = request != events.TERMINATED and (alone or (self._closing == "deadline" and not request))
            self.groups.bury_at_work(since if waits else inf, f"did not stop within {most:.0f} s")

    def _over(self) -> bool:
        """Whether the leg ends and no group is at work."""
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

    def _check_devices(self) -> None:
        """Has all devices checked again, if they were before the span. Nobody who has asked for the end waits
        for this, and a device that does not answer is unknown."""
        leg = self.replay.leg
        groups = [index for index in sorted(self.groups.alive) if leg.is_ready(index)]
        if not leg.checks or not groups or self._stop_request:
            return
        request = check_devices(self.config.limits)
        self.groups.say(groups, request)
        until = self.ledger.now + request.seconds + END_SECONDS
        waited = set(groups)
        while waited and self.ledger.now < until and not self._stop_request:
            index = self.handler.turn(self.groups.bury, TICK_SECONDS)
            if index is not None:
                group = self.groups.each[index]
                if not group.alive or all(rank in leg.end_checks for rank in group.ranks):
                    waited.discard(index)
        if note := deviating_note(at_end(leg).deviations):
            self.handler.audience.say(note)

    def _test(self) -> None:
        """Has the best network evaluated on the test examples, once, by any group that is left. A group that
        does not answer within READY_SECONDS is passed over."""
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
                self.world.send(index, Evaluate(best.trial.number))
            until = self.ledger.now + READY_SECONDS
            while self.replay.tested is None and self.ledger.now < until and (group.alive or group.late):
                self.handler.turn(self.groups.bury, TICK_SECONDS)

    def _sweep(self) -> None:
        """Removes all weights that are not needed, including those that a group wrote after it had been given
        up."""
        best = {self.replay.best.number} if self.replay.best else set()
        self.files.drop_weights_but(self.ledger.jobs.needed() | best)


@contextmanager
def few_collections() -> Iterator[None]:
    """Excludes what exists from garbage collections, and makes them rare, until the end of the block."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*SETTLED)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
