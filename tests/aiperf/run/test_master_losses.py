"""The master and groups that die, fall silent, never come up or do not stop, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import WorldError
from aiperf.journal.events import TERMINATED, Closed, Event
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.journal.run_files import RunFiles
from aiperf.pretending.assumptions import Assumptions, assumed
from aiperf.ranks.world import Gone
from aiperf.run.group import RESTARTS
from aiperf.run.initialisation import READY_SECONDS
from aiperf.run.master import STOP_SECONDS, Master
from aiperf.simulation.simulated_machine import SimulatedMachine
from aiperf.wire.messages import Assign, Evaluate, Working
from aiperf.wire.reports import Ceiling, HostUse, Rate
from aiperf.wire.trial import State
from tests.aiperf.groups import (
    Doing,
    FakeWorld,
    NeverReady,
    Obedient,
    assigned,
    block,
    lead,
    reason,
    reasons,
    states,
)
from tests.aiperf.simulation.simulated import Played, config, steady


class Dies(Obedient):
    """In its first trial."""

    def work(self, assign: Assign) -> Doing:
        return self.die("killed by signal 9")


class DiesAtOnce(Obedient):
    def control(self) -> Doing:
        return self.die("rank 2 on node1: the worker was killed by signal 11")


def works_for(seconds: float) -> type[Obedient]:
    """Its trials take so long, and it says nothing meanwhile."""

    class Long(Obedient):
        def work(self, assign: Assign) -> Doing:
            yield seconds
            yield from super().work(assign)

    return Long


def stopped_after(seconds: float, world: FakeWorld) -> Callable[[Master], None]:
    return lambda master: world.after(seconds, lambda: master.stop("interrupted"))


# Who dies


def test_a_group_whose_ranks_die_one_after_the_other_is_lost_once(tmp_path: Path) -> None:
    class Dying(Obedient):
        def train(self, assign: Assign) -> Doing:
            self.say(Gone("rank 2 is dead"))
            return self.die("rank 1 is dead")

    told = lead(tmp_path, FakeWorld(Obedient, Dying, restartable=False), max_trials=4)
    assert reasons(told) == ["rank 2 is dead"]
    assert states(told) == [State.COMPLETE] * 4


@pytest.mark.parametrize("restartable", [False, True])
def test_the_trials_of_a_lost_group_are_done_by_others_or_by_itself(
    restartable: bool, tmp_path: Path
) -> None:
    world = FakeWorld(*([Dies] if restartable else [Dies, Obedient]), restartable=restartable)
    told = lead(tmp_path, world, max_trials=6)
    assert (reasons(told), states(told)) == (["killed by signal 9"], [State.COMPLETE] * 6)
    assert [(attempt.state, attempt.group) for attempt in told.trials[0].attempts] == [
        (State.LOST, 0),
        (State.COMPLETE, 0 if restartable else 1),
    ]
    assert world.restarts == [0]
    assert restartable or assigned(world, 0) == [0]


def test_where_nothing_new_is_found_what_is_in_flight_is_trained_to_its_end_though_its_group_is_lost(
    tmp_path: Path,
) -> None:
    world = FakeWorld(Dies, Obedient, restartable=False)
    nothing_larger = {f"search.bounds.{name}": 1.0 for name in ("min_operations", "max_operations")}
    told = lead(tmp_path, world, changes=nothing_larger, minutes=0.05)
    assert [attempt.state for attempt in told.trials[0].attempts] == [State.LOST, State.COMPLETE]
    assert reason(told).startswith("exhausted: no new architecture found within the bounds")
    assert (states(told), told.tested is None) == ([State.COMPLETE], False)


def test_a_group_that_always_dies_is_given_up(tmp_path: Path) -> None:
    told = lead(tmp_path, world := FakeWorld(Dies, again=Dies), max_trials=9)
    assert (world.restarts, len(told.leg.losses)) == ([0] * RESTARTS, RESTARTS + 1)
    assert reason(told) == "error: every group is lost"


def test_a_validation_makes_good_for_a_loss(tmp_path: Path) -> None:
    class DiesInSecondTrial(Obedient):
        def work(self, assign: Assign) -> Doing:
            return self.die("killed by signal 9") if self.trained else super().work(assign)

    world = FakeWorld(DiesInSecondTrial, again=DiesInSecondTrial)
    told = lead(tmp_path, world, max_trials=RESTARTS + 3)
    assert states(told) == [State.COMPLETE] * (RESTARTS + 3)
    assert len(told.leg.losses) == RESTARTS + 2


@pytest.mark.parametrize("moment", ["set_up", "ceiling", "control"])
def test_a_group_that_is_lost_before_the_clock_starts_again_and_measures_again(
    moment: str, tmp_path: Path
) -> None:
    killed = type("Killed", (Obedient,), {moment: lambda self: self.die("killed by signal 9")})
    told = lead(tmp_path, world := FakeWorld(Obedient, killed), max_trials=3)
    assert (world.restarts, len(told.leg.losses)) == ([1], 1)
    assert sorted(told.leg.ceilings) == sorted(told.leg.controls) == [1, 2]
    assert states(told) == [State.COMPLETE] * 3
    (text,) = world.said
    assert text.endswith("killed by signal 9; it is started again")


@pytest.mark.parametrize("restartable", [False, True])
def test_a_loss_before_the_clock_that_is_not_repaired_ends_the_run(restartable: bool, tmp_path: Path) -> None:
    world = FakeWorld(DiesAtOnce, restartable=restartable, again=DiesAtOnce)
    told = "group 0 was lost before the clock started: rank 2 on node1: the worker was killed by signal 11"
    with pytest.raises(WorldError, match=f"^{told}$"):
        lead(tmp_path, world, max_trials=3)
    assert world.restarts == [0]
    assert reason(replay(read_journal(RunFiles(tmp_path / "run").journal))) == f"error: {told}"


def test_the_test_goes_to_another_group_when_the_first_is_lost(tmp_path: Path) -> None:
    class DiesInTest(Obedient):
        def evaluate(self, evaluate: Evaluate) -> Doing:
            return self.die("the weights cannot be read")

    told = lead(tmp_path, FakeWorld(DiesInTest, Obedient, restartable=False), max_trials=4)
    assert reasons(told) == ["the weights cannot be read"]
    assert told.tested is not None


def test_the_test_does_not_wait_for_a_group_that_may_never_come_back(tmp_path: Path) -> None:
    told = lead(tmp_path, world := FakeWorld(Dies, Obedient, again=NeverReady), max_trials=4)
    assert told.tested is not None
    assert world.clock.now < READY_SECONDS
    assert len(told.leg.losses) == 1


# Who is silent


@pytest.mark.parametrize(("seconds", "lost"), [(4.9 * 60, 0), (5.2 * 60, 1)])
def test_a_group_is_lost_that_is_silent_for_too_long(seconds: float, lost: int, tmp_path: Path) -> None:
    """In a first step five times the usual silence; its late word is not heard. Who has nothing to do may be
    silent."""
    world = FakeWorld(works_for(seconds), Obedient, restartable=False)
    told = lead(tmp_path, world, max_trials=2)
    assert reasons(told) == ["was silent for 300 s"] * lost
    first = [(attempt.state, attempt.group) for attempt in told.trials[0].attempts]
    assert first == ([(State.LOST, 0)] * lost + [(State.COMPLETE, lost)])
    assert assigned(world, 0) == [0]


def test_what_is_measured_beside_a_group_is_no_sign_of_its_life(tmp_path: Path) -> None:
    class Hangs(Obedient):
        def work(self, assign: Assign) -> Doing:
            for _ in range(100):
                yield 10.0
                self.say(HostUse(1, 10.0, 20.0, 19.0, 0.5, 0.25, 0.0, age_seconds=2.0))

    told = lead(tmp_path, FakeWorld(Hangs, Obedient, restartable=False), max_trials=2)
    assert reasons(told) == ["was silent for 300 s"]
    first = told.leg.uses[0]
    assert (first.use.others, first.use.age_seconds) == (0.5, 0.0)
    assert (first.end - told.leg.uses[1].end, len(told.leg.uses)) == (pytest.approx(-10.0, abs=0.3), 30)


def test_a_group_whose_steps_are_known_to_be_slow_is_waited_for(tmp_path: Path) -> None:
    class KnownToBeSlow(Obedient):
        """It measured 20,000 operations a second before the span: a step of its seed takes hours."""

        def measured(self, rank: int) -> Ceiling:
            return replace(super().measured(rank), seed=Rate(2e4, 2e4, 0.0))

        def work(self, assign: Assign) -> Doing:
            yield 3600.0
            yield from super().work(assign)

    told = lead(tmp_path, FakeWorld(KnownToBeSlow, restartable=False), max_trials=2)
    assert (reasons(told), states(told)) == ([], [State.COMPLETE] * 2)


@pytest.mark.parametrize(("last", "lost"), [(30.0, 0), (1.0, 1)])
def test_after_a_long_block_the_next_one_is_waited_for(last: float, lost: int, tmp_path: Path) -> None:
    class Long(Obedient):
        def work(self, assign: Assign) -> Doing:
            self.say(block(assign, 1, last))
            yield 110.0
            self.end(assign, State.FAILED, "the loss is nan")

    told = lead(tmp_path, FakeWorld(Long, restartable=False), minutes=5, max_trials=1)
    assert len(told.leg.losses) == lost


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


# Who is still at work when a leg ends


def test_a_group_that_does_not_stop_is_lost_after_its_time(tmp_path: Path) -> None:
    world = FakeWorld(works_for(200.0))
    told = lead(tmp_path, world, before=stopped_after(10.0, world), minutes=50)
    assert reasons(told) == ["did not stop within 32 s"], "half a minute, and a block of two seconds"
    assert 42.0 <= told.leg.end < 43.0
    assert told.tested is None


def test_a_group_that_does_not_stop_is_lost_while_hosts_report_all_the_time(tmp_path: Path) -> None:
    """As the hosts of a large run do together, several times in a quarter of a second."""

    class Hangs(Obedient):
        def work(self, assign: Assign) -> Doing:
            while self.world.now < 200.0:
                yield 0.1
                self.say(HostUse(1, 10.0, 20.0, 19.0, 0.5, 0.25, 0.0))

    world = FakeWorld(Hangs)
    told = lead(tmp_path, world, before=stopped_after(10.0, world), minutes=50)
    assert reasons(told) == ["did not stop within 32 s"]
    assert 42.0 <= told.leg.end < 43.0


def test_a_group_that_dies_when_it_is_to_stop_is_not_started_again(tmp_path: Path) -> None:
    class DiesOfStop(Obedient):
        def work(self, assign: Assign) -> Doing:
            while not self.halted:
                yield 0.1
            yield from self.die("killed by signal 15")

    world = FakeWorld(DiesOfStop)
    told = lead(tmp_path, world, before=stopped_after(0.3, world), minutes=5)
    assert (reasons(told), world.restarts) == (["killed by signal 15"], [])


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


@pytest.mark.parametrize(("asked", "lost"), [(TERMINATED, 1), ("interrupted", 0)])
def test_a_stop_by_the_scheduler_waits_for_nobody(asked: str, lost: int, tmp_path: Path) -> None:
    """A person's does, for the only group, while it says that it works."""

    class Validates(Obedient):
        def work(self, assign: Assign) -> Doing:
            for _ in range(20):
                yield 5.0
                self.say(Working())
            yield from super().work(assign)

    world = FakeWorld(Validates)
    told = lead(
        tmp_path, world, before=lambda master: world.after(9.0, lambda: master.stop(asked)), minutes=5
    )
    assert (reason(told), reasons(told)) == (asked, ["did not stop within 32 s"] * lost)
