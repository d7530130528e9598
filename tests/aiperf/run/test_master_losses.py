"""The master and groups that die, fall silent, never come up or do not stop, and whose devices deviate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from aiperf.errors import WorldError
from aiperf.journal.events import Closed, Event
from aiperf.pretending.assumptions import Assumptions, assumed
from aiperf.ranks.world import Gone
from aiperf.run.master import STOP_SECONDS, Master
from aiperf.score.deviation import agreement
from aiperf.simulation.simulated_machine import SimulatedMachine
from aiperf.wire.messages import Assign, CheckDevice, Working
from aiperf.wire.reports import Ceiling, DeviceCheck, HostUse, Rate
from aiperf.wire.trial import State
from tests.aiperf import groups
from tests.aiperf.groups import (
    Doing,
    FakeWorld,
    Obedient,
    block,
    dies_in,
    lead,
    leader,
    reason,
    reasons,
    states,
    works_for,
)
from tests.aiperf.simulation.simulated import Played, config, steady
from tests.tables import ComesTo


class DiesByRanks(Obedient):
    def train(self, assign: Assign) -> Doing:
        self.say(Gone("rank 2 is dead"))
        return self.die("rank 1 is dead")


class DiesInSecondTrial(Obedient):
    def work(self, assign: Assign) -> Doing:
        return self.die("killed by signal 9") if self.trained else super().work(assign)


class KnownToBeSlow(works_for(3600.0)):  # type: ignore[misc]
    """It measured 20,000 operations a second before the span: a step of its seed takes hours."""

    def measured(self, rank: int) -> Ceiling:
        return replace(super().measured(rank), seed=Rate(2e4, 2e4, 0.0))  # type: ignore[no-any-return]


class DiesOfStop(Obedient):
    def work(self, assign: Assign) -> Doing:
        while not self.halted:
            yield 0.1
        yield from self.die("killed by signal 15")


def silent_after(last: float) -> type[Obedient]:
    """A block that took so long, and then nothing for 110 seconds."""

    class Long(Obedient):
        def work(self, assign: Assign) -> Doing:
            self.say(block(assign, 1, last))
            yield 110.0
            self.end(assign, State.FAILED, "the loss is nan")

    return Long


DIES, DIES_OF_11 = dies_in("work"), dies_in("control", "rank 2 on node1: the worker was killed by signal 11")
NOTHING_LARGER = {f"search.bounds.{name}": 1.0 for name in ("min_operations", "max_operations")}
VALIDATES = works_for(100.0, Working(), every=5.0)
USE = HostUse(1, 10.0, 20.0, 19.0, 0.5, 0.25, 0.0, age_seconds=2.0)


def test_who_dies_is_silent_or_does_not_stop(
    folders: Iterator[Path], comes_to_what_was_read: ComesTo
) -> None:
    """A lost group is started again, and its trials are done by others or by itself. One is lost that is
    silent for five times as long as usual in a first step; its late word is not heard."""
    names = {**vars(groups), **globals(), "led": leader(folders)}
    comes_to_what_was_read("losses.txt", names)


def test_what_is_measured_beside_a_group_is_no_sign_of_its_life(tmp_path: Path) -> None:
    hangs = works_for(1000.0, USE, every=10.0)
    told = lead(tmp_path, FakeWorld(hangs, Obedient, restartable=False), max_trials=2)
    assert reasons(told) == ["was silent for 300 s"]
    first = told.leg.uses[0]
    assert (first.use.others, first.use.age_seconds) == (0.5, 0.0)
    assert (first.end - told.leg.uses[1].end, len(told.leg.uses)) == (pytest.approx(-10.0, abs=0.3), 30)


def test_a_master_that_is_held_up_blames_nobody(tmp_path: Path) -> None:
    """As when its journal lies on a file system that stalls: what it did not hear meanwhile is no silence."""
    world, held_up = FakeWorld(Obedient, Obedient, Obedient), list[Event]()

    def stall(master: Master) -> None:
        write = master.ledger.journal.write

        def slow(t: float, event: Event) -> None:
            write(t, event)
            if isinstance(event, Closed) and not held_up:
                held_up.append(event)
                world.clock.now += 200.0

        master.ledger.journal.write = slow  # type: ignore[method-assign]

    told = lead(tmp_path, world, silence_seconds=10.0, before=stall, max_trials=9)
    assert held_up
    assert (reasons(told), states(told)) == ([], [State.COMPLETE] * 9)


TARGET = {"limits.target_error": 0.7, "training.epochs": [1]}
"""Reached by the first child. When the stop comes, its group has just begun the next one."""
SLOW = steady(speed=replace(assumed("h100").speed, validation=0.05))
"""Validations of about a hundred seconds, in which a group says now and then that it works."""
BUSY = steady(
    messages=replace(assumed("h100").messages, master_seconds=0.4),
    speed=replace(assumed("h100").speed, step_seconds=20.0),
)
"""All groups close at once, within 26 s of the deadline; the master hears the last of it much later."""


@pytest.mark.parametrize(
    ("nodes", "assumptions", "minutes", "limits", "ends", "lost"),
    [
        # Without an earlier one nobody knows how long a validation takes, so it begins at the deadline.
        (2, SLOW, 5.0, {}, "deadline", 0),
        # Else the network that reached the target would not be tested: nobody else could.
        (1, SLOW, 60.0, TARGET, "target", 0),
        # By design: the rules allow no minute between the trials that a stop ends. But the groups are there.
        (2, SLOW, 60.0, TARGET, "target", 2),
        (40, BUSY, 10.0, {}, "deadline", 0),
    ],
)
def test_who_still_validates_is_waited_for_unless_others_were_stopped_before(
    nodes: int,
    assumptions: Assumptions,
    minutes: float,
    limits: dict[str, object],
    ends: str,
    lost: int,
    tmp_path: Path,
) -> None:
    machine, wanted = SimulatedMachine(nodes, 1), config(minutes, **limits)
    told = Played(tmp_path / "run", machine, assumptions, wanted).replay
    assert (reason(told), told.faults) == (ends, [])
    assert reasons(told) == ["did not stop within 32 s"] * lost
    at_end = [attempt.state for attempt in told.attempts if attempt.began is not None][-nodes:]
    assert at_end == [State.LOST if lost else State.STOPPED] * nodes
    assert told.tested is not None or ends == "deadline"
    if ends == "deadline":
        assert told.leg.end == told.leg.deadline
        late = max(attempt.end_time or 0.0 for attempt in told.attempts) - told.leg.end
        assert late > STOP_SECONDS + 2, "else nobody was waited for"


# The device check: who is asked, when it is refused, and what it costs after the span


def computing(*digests: str) -> type[Obedient]:
    """A group that computes these in one check after the other, and the right ones from then on; with "" it
    says nothing."""

    class Computes(Obedient):
        def check_device(self, message: CheckDevice) -> Doing:
            asked = [each for each in self.heard if isinstance(each, CheckDevice)]
            digest = dict(enumerate(digests, 1)).get(len(asked), "b175")
            if not digest:
                yield inf
            self.say(*(DeviceCheck(rank, (digest,), 2, 0.1) for rank in message.ranks or self.ranks))

    return Computes


def world(*digests: str) -> FakeWorld:
    """Four groups, of which the third computes that."""
    return FakeWorld(Obedient, Obedient, computing(*digests), Obedient)


def asked(world: FakeWorld, group: int) -> list[CheckDevice]:
    return [each for each in world.workers[group].heard if isinstance(each, CheckDevice)]


def test_a_device_that_deviates_twice_is_named_and_the_run_refused(tmp_path: Path) -> None:
    groups = world("ba5e", "ba5e")
    with pytest.raises(WorldError) as error:
        lead(tmp_path, groups, max_trials=4)
    assert str(error.value) == (
        "rank 3 on node1 (a device) computed other bits than 3 equal devices, twice; leave out that device "
        "and have it tested, or use --allow-deviating, which costs the class ranked"
    )
    assert [len(asked(groups, group)) for group in range(4)] == [1, 1, 2, 1], "only it is asked again"


def test_a_run_goes_on_and_its_journal_says_what_was_seen(
    folders: Iterator[Path], comes_to_what_was_read: ComesTo
) -> None:
    def third(*digests: str, **changes: bool) -> tuple[list[str], tuple[str, ...], list[str]]:
        """If it computes these: devices that deviate, why others are unknown, what the user hears."""
        told = lead(next(folders), groups := world(*digests), max_trials=4, changes=changes)
        assert told.tested is not None
        first, *_, last = asked(groups, 0)
        assert first == last
        assert 0 < first.seconds <= 5
        seen = agreement(told)
        return [each.text for each in seen.deviations], seen.unknown, groups.said

    comes_to_what_was_read("device_checks.txt", {"third": third})


def test_who_has_asked_for_the_end_does_not_wait_for_another_check(tmp_path: Path) -> None:
    groups = world()

    def interrupted(master: Master) -> None:
        released = master.groups.release

        def release() -> None:
            released()
            groups.after(0.05, lambda: master.stop("interrupted"))

        master.groups.release = release  # type: ignore[method-assign]

    told = lead(tmp_path, groups, before=interrupted, max_trials=99)
    assert len(asked(groups, 0)) == 1
    assert agreement(told).unknown == ("no device was checked after the span",)
