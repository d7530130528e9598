"""The master against groups that are threads and that die, fall silent or never come up."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import WorldError
from aiperf.files import RunFiles
from aiperf.journal.events import Closed, Event, RankReady
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.ranks.world import Gone
from aiperf.rules.who import CLOCK_SECONDS
from aiperf.run.master import Master
from aiperf.trial import State
from aiperf.wire.messages import Assign, Ceiling, Evaluate, Rate, Ready, Release, Started
from tests.aiperf.groups import FakeWorld, Obedient
from tests.aiperf.legs import Run, assigned, reasons, states


def test_a_group_whose_ranks_die_one_after_the_other_is_lost_once(tmp_path: Path) -> None:
    class Dying(Obedient):
        def train(self, assign: Assign) -> None:
            self.say(Gone("rank 2 is dead"))
            self.die("rank 1 is dead")

    told = Run(tmp_path, FakeWorld(Obedient, Dying, restartable=False), max_trials=4).go()
    assert reasons(told) == ["rank 2 is dead"]
    assert states(told) == [State.COMPLETE] * 4


class DiesInFirstTrial(Obedient):
    def train(self, assign: Assign) -> None:
        self.say(Started(assign.trial.number, assign.attempt, "key", 0.0))
        self.die("killed by signal 9")


def test_the_trials_of_a_lost_group_go_to_others(tmp_path: Path) -> None:
    world = FakeWorld(DiesInFirstTrial, Obedient, restartable=False)
    told = Run(tmp_path, world, max_trials=6).go()
    assert reasons(told) == ["killed by signal 9"]
    assert states(told) == [State.COMPLETE] * 6
    assert [attempt.state for attempt in told.trials[0].attempts] == [State.LOST, State.COMPLETE]
    assert [attempt.group for attempt in told.trials[0].attempts] == [0, 1]
    assert assigned(world, 0) == [0]
    assert world.workers[0].inbox.qsize() <= 1, "more than the one ahead, if that came before it died"


def test_a_lost_group_is_started_again_where_that_can_be_done(tmp_path: Path) -> None:
    world = FakeWorld(DiesInFirstTrial)
    told = Run(tmp_path, world, max_trials=3).go()
    assert world.restarts == [0]
    assert states(told) == [State.COMPLETE] * 3
    assert [event.ready.rank for event in told.ranks] == [1, 1]


class AlwaysDies(DiesInFirstTrial):
    pass


def test_a_group_that_is_started_again_reports_as_rarely_as_before(tmp_path: Path) -> None:
    world = FakeWorld(DiesInFirstTrial, Obedient)
    Run(tmp_path, world, silence_seconds=5.0, max_trials=8).go()
    assert world.restarts == [0]
    said = [message for worker in world.workers for message in worker.heard]
    assert [message.block_seconds for message in said if isinstance(message, Release)] == [1.0, 1.0]


def test_a_group_that_always_dies_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = FakeWorld(AlwaysDies)

    def again(group: int) -> bool:
        world.kinds[group] = AlwaysDies
        world._incarnation[group] += 1
        world.workers[group] = world._start(group)
        world.restarts.append(group)
        return True

    monkeypatch.setattr(world, "restart", again)
    told = Run(tmp_path, world, max_trials=9).go()
    assert world.restarts == [0, 0, 0]
    assert told.leg.ended is not None
    assert told.leg.ended.reason == "error: every group is lost"
    assert len(told.leg.losses) == 4


class FallsSilent(Obedient):
    """In its first trial; later it speaks again, of what it was told before."""

    def train(self, assign: Assign) -> None:
        self.say(Started(assign.trial.number, assign.attempt, "key", 0.0))
        time.sleep(1.2)
        self.end(assign, State.COMPLETE)


def test_a_silent_group_is_lost_and_its_late_word_is_not_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiperf.run.group.FIRST_STEP", 1.0)
    world = FakeWorld(FallsSilent, Obedient, restartable=False)
    told = Run(tmp_path, world, silence_seconds=0.4, minutes=0.1).go()
    assert len(told.leg.losses) == 1
    assert reasons(told)[0].startswith("was silent for ")
    # FallsSilent said COMPLETE of its trial in the end; it was given to the other group before.
    assert assigned(world, 0) == [0]
    assert [attempt.group for attempt in told.trials[0].attempts] == [0, 1]
    assert told.trials[0].attempts[0].state is State.LOST
    assert told.trials[0].state is State.COMPLETE


def test_a_first_step_may_take_longer(tmp_path: Path) -> None:
    world = FakeWorld(FallsSilent, restartable=False)
    told = Run(tmp_path, world, silence_seconds=0.5, max_trials=2).go()  # five times that is patience enough
    assert told.leg.losses == []
    assert states(told) == [State.COMPLETE] * 2


class KnownToBeSlow(FallsSilent):
    """It measured 20,000 operations a second before the span: a step of its seed takes hours."""

    def ceiling(self) -> None:
        slow = Rate(2e4, 2e4, 0.0)
        for rank in self.ranks:
            self.say(Ceiling(rank, "node1", "a device", "bf16", 32, slow, slow, seed=slow))


def test_a_group_whose_steps_are_known_to_be_slow_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiperf.run.group.FIRST_STEP", 1.0)
    world = FakeWorld(KnownToBeSlow, restartable=False)
    told = Run(tmp_path, world, silence_seconds=0.4, max_trials=2).go()
    assert told.leg.losses == []
    assert states(told) == [State.COMPLETE] * 2


def test_a_group_without_work_may_be_silent(tmp_path: Path) -> None:
    class Slow(Obedient):
        def train(self, assign: Assign) -> None:
            time.sleep(1.0)
            super().train(assign)

    told = Run(tmp_path, FakeWorld(Slow, Obedient), silence_seconds=0.4, max_trials=3).go()
    assert told.leg.losses == []


def test_what_a_held_up_master_did_not_hear_is_no_silence(tmp_path: Path) -> None:
    """As when its journal lies on a file system that stalls; several groups speak meanwhile."""
    run = Run(tmp_path, FakeWorld(Obedient, Obedient, Obedient), silence_seconds=0.3, max_trials=30)

    def stall(master: Master) -> None:
        write = master.ledger.journal.write

        def slow(t: float, event: Event) -> None:
            write(t, event)
            if isinstance(event, Closed) and event.segment.trial == 4:
                time.sleep(2.0)

        master.ledger.journal.write = slow  # type: ignore[method-assign]

    run.before = stall
    told = run.go()
    assert told.leg.losses == []
    assert states(told) == [State.COMPLETE] * 30


def test_what_a_held_up_master_hears_late_is_no_wrong_clock(tmp_path: Path) -> None:
    """The ranks said what time it is while the file system of the journal stood still."""
    run = Run(tmp_path, FakeWorld(Obedient, Obedient, Obedient), max_trials=3)

    def stall(master: Master) -> None:
        write = master.ledger.journal.write

        def slow(t: float, event: Event) -> None:
            write(t, event)
            if isinstance(event, RankReady) and event.ready.rank == 1:
                time.sleep(1.5)

        master.ledger.journal.write = slow  # type: ignore[method-assign]

    run.before = stall
    told = run.go()
    assert len(told.ranks) == 3
    assert all(abs(event.clock_offset_seconds) <= CLOCK_SECONDS for event in told.ranks)


class DiesAtOnce(Obedient):
    def control(self) -> None:
        self.die("rank 2 on node1: the worker was killed by signal 11")


def test_a_loss_before_the_clock_that_cannot_be_repaired_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(
        WorldError, match="group 1 was lost before the clock started: rank 2 on node1: the worker was killed"
    ):
        Run(tmp_path, FakeWorld(Obedient, DiesAtOnce, restartable=False), max_trials=3).go()
    told = replay(read_journal(RunFiles(tmp_path / "run").journal))
    assert told.leg.ended is not None
    assert told.leg.ended.reason.startswith("error: group 1 was lost before the clock")


@pytest.mark.parametrize("moment", ["set_up", "ceiling", "control"])
def test_a_group_that_is_lost_before_the_clock_starts_again_and_measures_again(
    moment: str, tmp_path: Path
) -> None:
    class Dies(Obedient):
        pass

    setattr(Dies, moment, lambda self: self.die("the worker was killed by signal 9"))
    run = Run(tmp_path, world := FakeWorld(Obedient, Dies), max_trials=3)
    told = run.go()
    assert world.restarts == [1]
    assert sorted(told.leg.ceilings) == sorted(told.leg.controls) == [1, 2]
    assert states(told) == [State.COMPLETE] * 3
    assert len(told.leg.losses) == 1
    assert any("killed by signal 9; it is started again" in text for text in run.said)


def test_a_group_that_is_lost_twice_before_the_clock_ends_the_run(tmp_path: Path) -> None:
    class AgainAndAgain(FakeWorld):
        def _start(self, index: int) -> Obedient:
            self.kinds[index] = DiesAtOnce
            return super()._start(index)

    with pytest.raises(WorldError, match="group 0 was lost before the clock started"):
        Run(tmp_path, world := AgainAndAgain(Obedient), max_trials=3).go()
    assert world.restarts == [0]


def test_the_test_goes_to_another_group_when_the_first_is_lost(tmp_path: Path) -> None:
    class DiesInTest(Obedient):
        def evaluate(self, evaluate: Evaluate) -> None:
            self.die("the weights cannot be read")

    world = FakeWorld(DiesInTest, Obedient, restartable=False)
    told = Run(tmp_path, world, max_trials=4).go()
    assert reasons(told) == ["the weights cannot be read"]
    assert told.tested is not None


class NeverReady(Obedient):
    def set_up(self) -> None:
        pass


def test_the_test_does_not_wait_for_a_group_that_may_never_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = FakeWorld(DiesInFirstTrial, Obedient)

    def in_vain(group: int) -> bool:
        world.kinds[group] = NeverReady
        world._incarnation[group] += 1
        world.workers[group] = world._start(group)
        return True

    monkeypatch.setattr(world, "restart", in_vain)
    monkeypatch.setattr("aiperf.run.master.READY_SECONDS", 20.0)
    began = time.monotonic()
    told = Run(tmp_path, world, max_trials=4).go()
    assert told.tested is not None
    assert time.monotonic() - began < 20
    assert len(told.leg.losses) == 1


def test_hosts_of_other_times_of_day_are_refused_before_the_clock_runs(tmp_path: Path) -> None:
    class Ahead(Obedient):
        def ready(self, rank: int) -> Ready:
            return replace(super().ready(rank), host="node2", wall_seconds=time.time() + 3.0)

    with pytest.raises(WorldError, match=r"the clocks of node2 and the master differ by 3\.0 s"):
        Run(tmp_path, FakeWorld(Obedient, Ahead), max_trials=2).go()
    told = replay(read_journal(RunFiles(tmp_path / "run").journal))
    assert told.leg.released is None


def test_ranks_that_never_are_ready_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiperf.run.master.READY_SECONDS", 0.5)
    with pytest.raises(WorldError, match="of 1 no word came: rank 2; see logs/"):
        Run(tmp_path, FakeWorld(Obedient, NeverReady), max_trials=2).go()
