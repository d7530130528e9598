"""The master against groups that are threads: what it dispatches, writes, refuses and survives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf import master as master_module
from aiperf.config import Config, load_preset, with_overrides
from aiperf.errors import WorldError
from aiperf.events import Closed, Event, Opened
from aiperf.files import RunFiles
from aiperf.jobs import Jobs
from aiperf.journal import VERSION, JournalWriter, read_journal
from aiperf.master import AHEAD, Master
from aiperf.messages import Assign, Evaluate, Finished, Ready, Setup, Started
from aiperf.replay import Replay, replay
from aiperf.trial import State
from aiperf.world import Gone, World
from nas.record import graph_to_json
from nas.seeds import residual
from tests.aiperf.groups import BATCH, STEPS, FakeWorld, Meeter, Obedient


class Run:
    """One leg of a run in a directory of its own."""

    def __init__(self, directory: Path, world: World, silence_seconds: float = 60.0, **limits: float) -> None:
        self.files, self.world, self.said = RunFiles(directory / "run"), world, list[str]()
        chosen = {"limits.minutes": 0.0, **{f"limits.{name}": value for name, value in limits.items()}}
        self.config: Config = with_overrides(load_preset("digits"), chosen)
        self.seed = residual()
        self.before: Callable[[Master], None] = lambda master: None
        self.silence_seconds = silence_seconds

    def go(self) -> Replay:
        """The run as its journal tells it."""
        with JournalWriter.begin(self.files) as journal:
            opened = Opened(VERSION, "run", "0", "code", self.config, graph_to_json(self.seed))
            told = Replay()
            journal.write(0.0, opened)
            told.add(0.0, opened)
            master = Master(
                self.config,
                self.files,
                self.seed,
                self.world,
                Jobs.of(self.config, self.seed, told),
                journal,
                told,
                watch=lambda t: None,
                silence_seconds=self.silence_seconds,
                say=self.said.append,
            )
            self.before(master)
            try:
                master.run("now", ("aiperf-hpc",))
            finally:
                self.world.close()
        found = replay(read_journal(self.files.journal))
        assert found.faults == []
        return found


def states(told: Replay) -> list[State]:
    return [told.trials[number].state for number in sorted(told.trials)]


def assigned(world: FakeWorld, group: int) -> list[int]:
    return [m.trial.number for m in world.workers[group].heard if isinstance(m, Assign)]


def reasons(told: Replay) -> list[str]:
    return [loss.reason for loss in told.leg.losses]


def test_a_whole_run(tmp_path: Path) -> None:
    world = FakeWorld(Obedient, Obedient, ranks=2)
    told = Run(tmp_path, world, max_trials=9).go()
    assert states(told) == [State.COMPLETE] * 9
    assert told.leg.ended is not None
    assert told.leg.ended.reason == "trials"
    assert told.leg.began.groups == ((1, 2), (3, 4))
    assert sorted(event.ready.rank for event in told.ranks) == [1, 2, 3, 4]
    assert sorted(told.leg.controls) == [1, 2, 3, 4]
    assert sorted(assigned(world, 0) + assigned(world, 1)) == list(range(9))
    assert assigned(world, 0)[:AHEAD] == [0, 1]  # one to train and one to prepare, before anything is heard
    assert told.tested is not None
    assert told.tested.trial == told.best.number  # type: ignore[union-attr]
    assert told.blocks.column("images").sum() == 9 * STEPS * BATCH


def test_no_trial_and_no_leg_ends_before_its_work(tmp_path: Path) -> None:
    """The news of a trial's end may travel faster than that of its last validation, by milliseconds."""

    class Late(Obedient):
        def end(self, assign: Assign, state: State, reason: str = "", out_of_memory: bool = False) -> None:
            number, attempt = assign.trial.number, assign.attempt
            self.say(Finished(number, attempt, state, reason, out_of_memory, age_seconds=0.01))

    told = Run(tmp_path, FakeWorld(Late, Late), max_trials=4).go()
    ends = [(attempt.validations[-1].end, attempt.ended.end) for attempt in told.attempts if attempt.ended]
    assert len(ends) == 4
    assert all(worked <= ended for worked, ended in ends)
    assert told.leg.ended is not None
    assert told.leg.ended.end == max(ended for _, ended in ends)


def test_a_group_whose_ranks_die_one_after_the_other_is_lost_once(tmp_path: Path) -> None:
    class Dying(Obedient):
        def train(self, assign: Assign) -> None:
            self.say(Gone("rank 2 is dead"))
            self.die("rank 1 is dead")

    told = Run(tmp_path, FakeWorld(Obedient, Dying, restartable=False), max_trials=4).go()
    assert reasons(told) == ["rank 2 is dead"]
    assert states(told) == [State.COMPLETE] * 4


def test_the_deadline_ends_a_run(tmp_path: Path) -> None:
    began = time.monotonic()
    told = Run(tmp_path, FakeWorld(Obedient, Obedient), minutes=0.01).go()
    assert time.monotonic() - began < 5
    assert told.leg.ended is not None
    assert told.leg.ended.reason == "deadline"
    assert told.span_seconds == pytest.approx(0.6, abs=0.01)
    assert State.COMPLETE in states(told)


def test_a_target_ends_a_run(tmp_path: Path) -> None:
    told = Run(tmp_path, FakeWorld(Obedient), target_error=0.16).go()
    assert told.leg.ended is not None
    assert told.leg.ended.reason == "target"
    assert told.best is not None
    assert told.best.error is not None
    assert told.best.error <= 0.16
    assert len(told.trials) < 9


def test_a_stop_by_the_scheduler_keeps_the_test_for_the_end(tmp_path: Path) -> None:
    run = Run(tmp_path, FakeWorld(Obedient, Obedient), minutes=5)
    run.before = lambda master: threading.Timer(0.3, master.stop, ["terminated"]).start()
    began = time.monotonic()
    told = run.go()
    assert time.monotonic() - began < 5
    assert told.leg.ended is not None
    assert told.leg.ended.reason == "terminated"
    assert told.best is not None
    assert told.tested is None


def test_ranks_meet_where_their_leader_says(tmp_path: Path) -> None:
    told = Run(tmp_path, FakeWorld(Meeter, ranks=2), max_trials=2).go()
    assert states(told) == [State.COMPLETE] * 2


# Failures of a trial


class FailsOnce(Obedient):
    def train(self, assign: Assign) -> None:
        if assign.trial.number == 0 and assign.attempt == 1:
            self.end(assign, State.FAILED, "rank 1 on node1: ValueError: no")
        else:
            super().train(assign)


def test_a_failed_trial_is_recorded_and_the_run_goes_on(tmp_path: Path) -> None:
    told = Run(tmp_path, FakeWorld(FailsOnce), max_trials=3).go()
    assert states(told) == [State.FAILED, State.COMPLETE, State.COMPLETE]
    assert told.trials[0].attempts[0].ended.reason == "rank 1 on node1: ValueError: no"  # type: ignore[union-attr]
    assert told.leg.losses == []


class OutOfMemory(Obedient):
    def train(self, assign: Assign) -> None:
        if assign.trial.hyper.batch_size > 25:
            self.end(assign, State.FAILED, "no memory", out_of_memory=True)
        else:
            super().train(assign)


def test_what_does_not_fit_is_tried_with_half_the_batch(tmp_path: Path) -> None:
    told = Run(tmp_path, FakeWorld(OutOfMemory, ranks=2), max_trials=2).go()
    assert states(told) == [State.COMPLETE] * 2
    batches = [attempt.trial.hyper.batch_size for attempt in told.trials[0].attempts]
    assert batches == [50, 24]  # half of it, which two ranks share evenly


# Death and silence


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
    assert assigned(world, 0) == [0]  # the one ahead waits unread, and nothing more came
    assert world.workers[0].inbox.empty()


def test_a_lost_group_is_started_again_where_that_can_be_done(tmp_path: Path) -> None:
    world = FakeWorld(DiesInFirstTrial)
    told = Run(tmp_path, world, max_trials=3).go()
    assert world.restarts == [0]
    assert states(told) == [State.COMPLETE] * 3
    assert [event.ready.rank for event in told.ranks] == [1, 1]


class AlwaysDies(DiesInFirstTrial):
    pass


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
    monkeypatch.setattr(master_module, "FIRST_STEP", 1.0)
    world = FakeWorld(FallsSilent, Obedient, restartable=False)
    told = Run(tmp_path, world, silence_seconds=0.4, minutes=0.03).go()
    assert len(told.leg.losses) == 1
    assert reasons(told)[0].startswith("said nothing for ")
    # FallsSilent said COMPLETE of both its trials in the end; both were given to the other group before.
    for number in (0, 1):
        assert [attempt.group for attempt in told.trials[number].attempts] == [0, 1]
        assert told.trials[number].attempts[0].state is State.LOST
        assert told.trials[number].state is State.COMPLETE


def test_a_first_step_may_take_longer(tmp_path: Path) -> None:
    world = FakeWorld(FallsSilent, restartable=False)
    told = Run(tmp_path, world, silence_seconds=0.5, max_trials=2).go()  # five times that is patience enough
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
        write = master.journal.write

        def slow(t: float, event: Event) -> None:
            write(t, event)
            if isinstance(event, Closed) and event.segment.trial == 4:
                time.sleep(2.0)

        master.journal.write = slow  # type: ignore[method-assign]

    run.before = stall
    told = run.go()
    assert told.leg.losses == []
    assert states(told) == [State.COMPLETE] * 30


def test_a_loss_before_the_clock_runs_ends_the_run(tmp_path: Path) -> None:
    class DiesAtOnce(Obedient):
        def control(self) -> None:
            self.die("rank 2 on node1: the worker was killed by signal 11")

    with pytest.raises(WorldError, match="group 1 did not come up: rank 2 on node1: the worker was killed"):
        Run(tmp_path, FakeWorld(Obedient, DiesAtOnce), max_trials=3).go()
    told = replay(read_journal(RunFiles(tmp_path / "run").journal))
    assert told.leg.ended is not None
    assert told.leg.ended.reason.startswith("error: group 1 did not come up")


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
    monkeypatch.setattr(master_module, "READY_SECONDS", 20.0)
    began = time.monotonic()
    told = Run(tmp_path, world, max_trials=4).go()
    assert told.tested is not None
    assert time.monotonic() - began < 20
    assert len(told.leg.losses) == 1


# What is refused before the clock runs


def test_ranks_that_differ_are_refused(tmp_path: Path) -> None:
    class OtherCode(Obedient):
        def ready(self, rank: int) -> Ready:
            return replace(super().ready(rank), host="node2", code_hash="other")

    with pytest.raises(WorldError, match="differ in code hash; give all nodes the same"):
        Run(tmp_path, FakeWorld(Obedient, OtherCode), max_trials=3).go()


def with_devices(*ids: str, visible: int) -> type[Obedient]:
    class WithDevices(Obedient):
        def ready(self, rank: int) -> Ready:
            return replace(super().ready(rank), device_id=ids[rank - 1], visible_devices=visible)

    return WithDevices


@pytest.mark.parametrize(
    ("ids", "visible", "message"),
    [
        (("a", "a"), 1, "2 ranks on node1 have the same device; start one rank for each device"),
        (("a", "b"), 8, "node1 shows 8 devices to 2 rank(s) that train; start 9 ranks"),
    ],
)
def test_devices_that_are_shared_or_idle_are_refused(
    ids: tuple[str, ...], visible: int, message: str, tmp_path: Path
) -> None:
    with pytest.raises(WorldError) as raised:
        Run(tmp_path, FakeWorld(with_devices(*ids, visible=visible), ranks=2), max_trials=3).go()
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("visible", [1, 2])  # a device for each rank alone, or both for both
def test_one_rank_for_each_device(visible: int, tmp_path: Path) -> None:
    Run(tmp_path, FakeWorld(with_devices("a", "b", visible=visible), ranks=2), max_trials=1).go()


def test_a_directory_that_is_not_shared_is_told_of(tmp_path: Path) -> None:
    class Apart(Obedient):
        def ready(self, rank: int) -> Ready:
            return replace(super().ready(rank), host="node2", sees_run=False)

    run = Run(tmp_path, FakeWorld(Obedient, Apart), max_trials=1)
    run.go()
    assert run.said == [
        (
            f"{tmp_path}/run is not shared with node2: weights travel over MPI, and the logs of their ranks "
            "stay there"
        )
    ]


# Weights


class Keeper(Obedient):
    """It writes the file before it tells, as a worker does."""

    def end(self, assign: Assign, state: State, reason: str = "", out_of_memory: bool = False) -> None:
        files = RunFiles(Path(next(m.directory for m in self.heard if isinstance(m, Setup))))
        files.weights_directory.mkdir(exist_ok=True)
        files.weights(assign.trial.number).write_bytes(b"weights")
        time.sleep(0.05 * self.index)
        self.say(Finished(assign.trial.number, assign.attempt, state, reason, weights="hash"))


def test_no_weights_are_dropped_before_they_are_told_of(tmp_path: Path) -> None:
    missing: list[int] = []

    class Reader(Keeper):
        def train(self, assign: Assign) -> None:
            files = RunFiles(Path(next(m.directory for m in self.heard if isinstance(m, Setup))))
            parent = assign.trial.parent
            if parent is not None and not files.weights(parent).exists():
                missing.append(parent)
            super().train(assign)

    run = Run(tmp_path, FakeWorld(Reader, Reader, Reader), max_trials=40)
    told = run.go()
    assert states(told) == [State.COMPLETE] * 40
    assert missing == []
    kept = {int(path.stem) for path in run.files.kept_weights()}
    assert told.best is not None
    assert told.best.number in kept
    assert len(kept) < 12  # and those of the dead are gone


def test_nobody_is_told_to_measure_before_all_are_ready(tmp_path: Path) -> None:
    order: list[tuple[int, str]] = []

    class Late(Obedient):
        def set_up(self) -> None:
            time.sleep(0.3 * self.index)
            order.append((self.index, "ready"))
            super().set_up()

        def control(self) -> None:
            order.append((self.index, "control"))
            super().control()

    Run(tmp_path, FakeWorld(Late, Late), max_trials=1).go()
    assert [what for _, what in order] == ["ready", "ready", "control", "control"]
