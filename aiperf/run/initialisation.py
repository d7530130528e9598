"""The initialisation of a leg, from the first message to the groups until the clock can start: all are ready
and have measured, and their first trials are proposed.

The functions are pure: those named `refuse…` raise WorldError for the first fault of the ranks' messages,
with its remedy.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aiperf.errors import NotReady, StoppedEarly, WorldError
from aiperf.hardware.bound import without_bound
from aiperf.journal.events import FabricMeasured, Origin, RankReady
from aiperf.proposing.plan import fabric_seconds, measuring_seconds
from aiperf.rules.eligibility import refuse_unrankable
from aiperf.rules.participants import INITIALISATION_SECONDS, format_faults
from aiperf.run.device_checks import check_devices, refuse_deviating
from aiperf.run.handler import TICK_SECONDS, MessageHandler
from aiperf.score.deviation import suspects
from aiperf.wire.clocks import CLOCK_SECONDS
from aiperf.wire.fabric import assembled
from aiperf.wire.formats import emulation_text
from aiperf.wire.messages import MeasureCeiling, MeasureControl, ToGroup
from aiperf.wire.reports import NOTE, Ready
from aiperf.wording import counted

READY_SECONDS = INITIALISATION_SECONDS
"""Time limit in seconds for each step of the initialisation, and for a group that may have to be restarted
for the test. A run that took longer would be INVALID, so there is no point in waiting longer."""

EARLY_RESTARTS = 1
"""Number of times that a group is restarted before the clock starts. A process may be killed by accident; but
if a library or a driver does not work, the user should see the reason soon."""

PREPARING_SECONDS = 300.0
"""Time limit in seconds for the proposal of the first candidates before the clock starts, which is enough for
a hundred thousand groups. Those that are left are proposed afterwards."""

LATE_SHOWN = 10
"""Maximum number of late ranks named in a message: on a large machine whole nodes are late, and the message
is one line."""


class Initialisation:
    """The initialisation of one leg. A group that is lost is restarted once and repeats what it had done."""

    def __init__(self, handler: MessageHandler, stop_reason: Callable[[], str]) -> None:
        """`stop_reason` returns why the run is to stop; empty if it is not."""
        self._handler, self._stop_reason = handler, stop_reason
        self.groups, self.ledger, self.audience = handler.groups, handler.ledger, handler.audience
        self.replay, self.config = handler.replay, handler.replay.opened.config
        self._fabric = 0.0
        """Time limit in seconds for measuring the fabric; 0 if it is not measured."""

    def run(self) -> None:
        """Raises WorldError if a group cannot be initialised, and StoppedEarly. Each step is repeated until
        all groups have done it, because a group that is restarted begins anew."""
        leg, seconds = self.replay.leg, measuring_seconds(self.config.limits) / 2
        num_ranks = sum(len(group.ranks) for group in self.groups.each)
        measured = self.replay.opened.origin is Origin.MEASURED
        self._fabric = fabric_seconds(self.config.limits, num_ranks) if measured else 0.0
        # All together or not at all: a group that is started again later measures no fabric.
        self.groups.world.send_all(replace(self.groups.setup, fabric_seconds=self._fabric))
        prepared = False
        while not prepared:
            self._await(leg.is_ready)
            self._record_fabric()
            if len(leg.ceilings) < num_ranks:
                self._check(list(leg.devices.values()))
                # All measure at the same time, as they will train: they share hosts and their memory.
                self._measure(leg.ceilings, self.groups.observe(), MeasureCeiling(seconds))
            elif len(leg.controls) < num_ranks:
                self._measure(leg.controls, MeasureControl(seconds))
            elif self._has_devices and len(leg.checks) < num_ranks:
                self._measure(leg.checks, check_devices(self.config.limits))
            elif asked := suspects(leg):
                self._measure(leg.repeats, check_devices(self.config.limits, asked), ranks=asked)
            else:
                if note := refuse_deviating(leg, self.config.allow_deviating):
                    self.audience.say(note)
                prepared = self._prepared(leg.controls)
        gc.freeze()  # the networks of the first trials stay as long as these: see `few_collections`

    def _record_fabric(self) -> None:
        """Records what the ranks measured of the fabric. Once all are ready, each has sent its part."""
        parts = self._handler.fabric_parts
        if parts and self.replay.leg.fabric is None:
            ranks = [rank for group in self.groups.each for rank in group.ranks]
            self.ledger.write(FabricMeasured(assembled(parts.values(), ranks)))

    def _prepared(self, controls: Collection[int]) -> bool:
        """Proposes the first trials. They are dispatched after the clock has started, and until then no group
        hears of them. False if a group was lost meanwhile, so that its `controls` are missing."""
        num_ranks, until = len(controls), self.ledger.now + PREPARING_SECONDS
        while len(controls) == num_ranks and self.ledger.now < until and self.ledger.jobs.prepare():
            self._handler.turn(self._lose_early, 0.0)
            self._refuse_stop()
        return len(controls) == num_ranks

    def _check(self, ready: Sequence[Ready]) -> None:
        """Checks the ranks before they measure, and gives the user notes on them, once in a leg. Raises
        WorldError or ConfigError."""
        declared = self.config.training.format
        refuse_idle_devices(ready)
        unbounded = without_bound(ready, declared) if self._has_devices else ()
        refuse_unrankable(self.config, ready[0].data, unbounded)
        if not self.replay.leg.losses:
            for text in notes(self._handler.files.directory, declared, ready):
                self.audience.say(text)
        refuse_other_formats(declared, ready)
        refuse_other_clocks(self.replay.ranks)

    @property
    def _has_devices(self) -> bool:
        """Whether ranks compute: others only pretend to."""
        return self.replay.opened.origin is Origin.MEASURED

    def _measure(
        self, measured: Mapping[int, object], *requests: ToGroup, ranks: Sequence[int] | None = None
    ) -> None:
        """Sends `requests` to the groups that have not measured yet, and returns when each has measured or
        was lost. Of a group only `ranks` measure, or all."""
        asked = None if ranks is None else set(ranks)
        losses = [group.losses for group in self.groups.each]

        def reached(index: int) -> bool:
            group = self.groups.each[index]
            return group.losses > losses[index] or all(
                rank in measured for rank in group.ranks if asked is None or rank in asked
            )

        lacking = [index for index in range(len(losses)) if not reached(index)]
        for message in requests:
            self.groups.say(lacking, message)
        self._await(reached)

    def _await(self, reached: Callable[[int], bool]) -> None:
        """Handles messages until `reached` is true of every group. Only the group of the last message can
        have changed, so only that one is checked again. Raises StoppedEarly, or NotReady after
        READY_SECONDS."""
        until = self.ledger.now + READY_SECONDS
        waited = {index for index in range(len(self.groups.each)) if not reached(index)}
        while waited:
            index = self._handler.turn(self._lose_early, TICK_SECONDS)
            if index is not None:
                (waited.discard if reached(index) else waited.add)(index)
            self._refuse_stop()
            if self.ledger.now > until:
                ready = [event.ready for event in self.replay.ranks]
                raise not_in_time(READY_SECONDS, self.groups.world.groups, ready)

    def _lose_early(self, index: int, reason: str) -> None:
        """Restarts a group that is lost before the clock starts, once: a fault of its node or device will
        show again, and then the run is refused."""
        group = self.groups.each[index]
        if group.refused:
            raise WorldError(group.refused)
        what = "was lost before the clock started" if self.replay.leg.is_ready(index) else "failed to start"
        lost = NotReady(f"group {index} {what}: {reason}")
        if group.losses >= EARLY_RESTARTS:
            raise lost
        self.groups.lose(index, reason)
        if not group.alive:
            raise lost
        if self._fabric:  # unless they have met, its ranks would be waited for in vain
            self._handler.join_fabric("", 0)
        self.audience.say(f"{lost}; it is started again")

    def _refuse_stop(self) -> None:
        """Raises StoppedEarly if the user or the scheduler wants the run to end."""
        if reason := self._stop_reason():
            raise StoppedEarly(reason)


def refuse_idle_devices(ranks: Sequence[Ready]) -> None:
    """Refuses devices of a host that no rank uses, or that several ranks share: the commonest mistake in a
    first job script."""
    shared = Counter((each.host, each.device_id) for each in ranks if each.device_id)
    for (host, _), num_ranks in shared.items():
        if num_ranks > 1:
            raise WorldError(
                f"{num_ranks} ranks on {host} have the same device; start one rank for each device and "
                "one more for the master, and make all devices of a host visible to each of its ranks"
            )
    workers = Counter(each.host for each in ranks)
    for each in ranks:
        if each.device_id and workers[each.host] < each.visible_devices and each.visible_devices > 1:
            right = len(workers) * each.visible_devices + 1
            ranks_there = counted(workers[each.host], "training rank")
            raise WorldError(
                f"{each.host} shows {each.visible_devices} devices to {ranks_there}; start {right} ranks "
                "(one per device, plus the master), or make fewer devices visible"
            )


def refuse_other_formats(declared: str, ranks: Iterable[Ready]) -> None:
    """Refuses products in a narrower format than declared, which would make the run INVALID at its end."""
    for ready in ranks:
        for wrong in format_faults(declared, ready):
            raise WorldError(f"{wrong}; unset the setting that causes this, or declare that format")


def refuse_other_clocks(ranks: Iterable[RankReady]) -> None:
    """Refuses hosts whose time of day differs from the master's, which would make the run INVALID as well."""
    for event in ranks:
        if event.clock.least_seconds > CLOCK_SECONDS:
            raise WorldError(
                f"the clocks of {event.ready.host} and the master differ by "
                f"{abs(event.clock_offset_seconds):.1f} s; synchronise them (chrony, ntp)"
            )


def not_in_time(seconds: float, groups: Iterable[tuple[int, ...]], ranks: Iterable[Ready]) -> NotReady:
    """The error of a run that cannot begin because its groups were not ready after `seconds`; `ranks` are
    those that were."""
    ready = {each.rank for each in ranks}
    late = [str(rank) for group in groups for rank in group if rank not in ready]
    which = f", of {len(late)} no word came: rank {', '.join(late[:LATE_SHOWN])}" if late else ""
    return NotReady(f"not all ranks were ready in {seconds / 60:.0f} minutes{which}; see logs/")


def notes(directory: Path, declared: str, ranks: Sequence[Ready]) -> list[str]:
    """Notes for the user: what of a folder is read, accelerators that are not used, hosts that do not share
    the run directory, and a format that is emulated. Each is one line."""
    found = [f"data: {ranks[0].data_note}"] if ranks[0].data_note else []
    if apart := sorted({ready.host for ready in ranks if not ready.sees_run}):
        found.append(
            f"{directory} is not shared with {', '.join(apart)}: weights, and at the end rank logs, are "
            f"sent as messages"
        )
    emulated = (emulation_text(ready.device, declared, ready.formats) for ready in ranks)
    if text := next(filter(None, emulated), ""):
        found.append(f"{text}; --format auto chooses the fastest native format")
    noted = {ready.host: ready.settings[NOTE] for ready in ranks if NOTE in ready.settings}
    for text in dict.fromkeys(noted.values()):
        hosts = sorted(host for host, other in noted.items() if other == text)
        found.append(f"{hosts[0]}{f' and {len(hosts) - 1} more' * (len(hosts) > 1)}: {text}")
    return found
