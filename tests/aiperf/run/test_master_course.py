"""The course of a leg by the real master: who is served when, what ends it, what is said to a group."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.config import with_overrides
from aiperf.run.group import RESTARTS
from aiperf.tally import Classified
from aiperf.trial import Segment, State, StepBlock
from aiperf.wire.messages import (
    Assign,
    Ceiling,
    Finished,
    Observe,
    Rate,
    Ready,
    Release,
    Setup,
    Started,
    Steps,
    Stop,
    Validated,
)
from tests.aiperf.groups import BATCH, STEPS, VALIDATED, FakeWorld, Obedient
from tests.aiperf.legs import Run, assigned, reasons, states


class DiesInFirstTrial(Obedient):
    def train(self, assign: Assign) -> None:
        self.die("killed by signal 9")


def test_the_only_trial_of_a_lost_group_is_given_on_where_nothing_new_is_found(tmp_path: Path) -> None:
    run = Run(tmp_path, FakeWorld(DiesInFirstTrial, Obedient, restartable=False), minutes=0.05)
    run.config = with_overrides(run.config, {"search.bounds.max_operations": 1.0})
    told = run.go()
    assert [attempt.state for attempt in told.trials[0].attempts] == [State.LOST, State.COMPLETE]
    assert told.leg.ended is not None
    assert told.leg.ended.reason.startswith("exhausted: ")


def test_a_group_that_paused_after_failures_is_served_again(tmp_path: Path) -> None:
    class FailsThreeTimes(Obedient):
        def train(self, assign: Assign) -> None:
            if assign.trial.number < 3:
                self.end(assign, State.FAILED, "the loss is nan")
            else:
                super().train(assign)

    told = Run(tmp_path, FakeWorld(FailsThreeTimes), minutes=0.1, max_trials=6).go()
    assert states(told) == [State.FAILED] * 3 + [State.COMPLETE] * 3
    assert told.leg.ended is not None
    assert told.leg.ended.reason == "trials"
    third = told.trials[2].attempts[0].ended
    assert third is not None
    assert told.trials[4].attempts[0].dispatch_time >= third.end + 1.0, "it had one to prepare, and paused"


def test_the_first_group_is_served_first_whoever_was_ready_first(tmp_path: Path) -> None:
    class Later(Obedient):
        def set_up(self) -> None:
            time.sleep(0.2 * (1 - self.index))
            super().set_up()

    told = Run(tmp_path, FakeWorld(Later, Later), max_trials=4).go()
    assert [told.trials[number].attempts[0].group for number in (0, 1)] == [0, 1]


def test_a_target_that_is_just_reached_ends_a_run(tmp_path: Path) -> None:
    told = Run(tmp_path, FakeWorld(Obedient), minutes=0.05, target_error=0.25).go()
    assert told.leg.ended is not None
    assert told.leg.ended.reason == "target"
    assert told.trials[0].attempts[0].validations[0].segment.error == 0.25
    assert len(told.trials) == 1, "nothing is prepared beside the first"


def test_a_group_that_closes_is_given_nothing_more(tmp_path: Path) -> None:
    class Closes(Obedient):
        def assigned(self, assign: Assign) -> None:
            self.end(assign, State.WAITING)

    world = FakeWorld(Closes, Obedient)
    Run(tmp_path, world, minutes=0.01).go()
    assert assigned(world, 0) in ([0], [0, 2])


def test_a_group_that_does_not_stop_is_lost_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hangs(Obedient):
        def train(self, assign: Assign) -> None:
            time.sleep(3.0)

    monkeypatch.setattr("aiperf.run.master.STOP_SECONDS", 0.5)
    run, asked = Run(tmp_path, FakeWorld(Hangs), 5.0, minutes=5), list[float]()

    def ask(master: object) -> None:
        def stop() -> None:
            asked.append(time.monotonic())
            master.stop("interrupted")  # type: ignore[attr-defined]

        threading.Timer(0.5, stop).start()

    run.before = ask
    told = run.go()
    assert reasons(told) == ["did not stop within 2 s"]  # half a second, and a block of one second
    assert 1.5 <= time.monotonic() - asked[0] < 3.0


def test_a_group_that_dies_when_it_is_to_stop_is_not_started_again(tmp_path: Path) -> None:
    class DiesOfStop(Obedient):
        def train(self, assign: Assign) -> None:
            while not isinstance(self.inbox.get(), Stop):
                pass
            self.die("killed by signal 15")

    run = Run(tmp_path, world := FakeWorld(DiesOfStop), minutes=5)
    run.before = lambda master: threading.Timer(0.3, master.stop, ["interrupted"]).start()
    told = run.go()
    assert reasons(told) == ["killed by signal 15"]
    assert world.restarts == []


def test_who_is_started_again_is_told_what_the_others_were(tmp_path: Path) -> None:
    class Measured(DiesInFirstTrial):
        def ceiling(self) -> None:
            rate = Rate(1e11, 9e10, 0.01)
            for rank in self.ranks:
                self.say(Ceiling(rank, "node1", "a device", "bf16", 2048, rate, rate, threads=3))

    world = FakeWorld(Measured, Obedient, ranks=2)
    Run(tmp_path, world, minutes=0.03).go()
    assert world.restarts == [0]
    heard = [message for message in world.workers[0].heard if not isinstance(message, Assign)]
    setup, observe, release = heard[:3]
    assert isinstance(setup, Setup)
    assert isinstance(observe, Observe)
    assert observe == next(each for each in world.workers[1].heard if isinstance(each, Observe))
    assert isinstance(release, Release)
    assert release.threads == {"1": 3, "2": 3}
    assert release.seconds_left is not None
    assert 0.0 < release.seconds_left < 1.8
    assert sum(isinstance(message, Release) for message in heard) == 1, "once, not for each of its ranks"


def test_after_a_long_block_the_next_one_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Obedient):
        def train(self, assign: Assign) -> None:
            number, attempt = assign.trial.number, assign.attempt
            self.say(Started(number, attempt, "key", 0.0))
            self.say(Steps(StepBlock(number, attempt, 0, 1, BATCH, 1.0, 1.5), 0.0))
            time.sleep(1.2)
            self.say(Finished(number, attempt, State.FAILED, "the loss is nan"))

    monkeypatch.setattr("aiperf.run.group.FIRST_STEP", 1.0)
    told = Run(tmp_path, FakeWorld(Slow, restartable=False), 0.4, minutes=0.1, max_trials=1).go()
    assert told.leg.losses == []


def test_a_validation_makes_good_for_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class DiesInSecondTrial(Obedient):
        def train(self, assign: Assign) -> None:
            if self.trained:
                self.die("killed by signal 9")
            super().train(assign)

    world = FakeWorld(DiesInSecondTrial)
    restart = world.restart

    def again(group: int) -> bool:
        done = restart(group)
        world.workers[group].__class__ = DiesInSecondTrial
        return done

    monkeypatch.setattr(world, "restart", again)
    told = Run(tmp_path, world, minutes=0.2, max_trials=RESTARTS + 3).go()
    assert states(told) == [State.COMPLETE] * (RESTARTS + 3)
    assert len(told.leg.losses) == RESTARTS + 2


def test_old_news_is_of_when_it_happened(tmp_path: Path) -> None:
    class TellsLate(Obedient):
        def train(self, assign: Assign) -> None:
            number, attempt = assign.trial.number, assign.attempt
            self.say(Started(number, attempt, "key", 0.0))
            time.sleep(0.8)
            self.say(Steps(StepBlock(number, attempt, 0, STEPS, STEPS * BATCH, 0.1, 1.5), 0.5))
            self.say(
                Validated(
                    Segment(number, attempt, 0, STEPS, STEPS * BATCH, 0.1, Classified(VALIDATED, 300), 0.1),
                    0.4,
                )
            )
            self.say(Finished(number, attempt, State.COMPLETE, "", age_seconds=0.3))

    told = Run(tmp_path, FakeWorld(TellsLate), minutes=0.05, max_trials=1).go()
    (attempt,) = told.trials[0].attempts
    assert attempt.ended is not None
    ages = [
        told.blocks.column("times")[0] - told.blocks.column("ends")[0],
        attempt.validations[0].t - attempt.validations[0].end,
    ]
    assert ages == pytest.approx([0.5, 0.4], abs=0.09)
    assert attempt.ended.end - attempt.validations[0].end == pytest.approx(0.1, abs=0.09)
    assert attempt.ended.finished.age_seconds == 0.0, "it lies in the end, and is not said twice"


def test_a_leg_that_has_nothing_to_tell_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Long(Obedient):
        def train(self, assign: Assign) -> None:
            time.sleep(1.5)
            super().train(assign)

    monkeypatch.setattr("aiperf.run.master.QUIET_LINE_SECONDS", 0.3)
    run = Run(tmp_path, FakeWorld(Long), max_trials=1)
    run.go()
    beats = run.files.journal.read_text(encoding="utf-8").count('"type":"Beat"')
    assert 2 <= beats <= 5


def test_news_of_an_attempt_that_was_taken_away_is_not_heard(tmp_path: Path) -> None:
    """In each of its three kinds; the group is not lost by it, and the journal is whole."""

    class TellsOfAnother(Obedient):
        def ready(self, rank: int) -> Ready:
            return replace(super().ready(rank), seconds=0.2)

        def train(self, assign: Assign) -> None:
            number, old = assign.trial.number, assign.attempt + 1
            self.say(Steps(StepBlock(number, old, 0, STEPS, STEPS * BATCH, 0.01, 1.5), 0.0))
            segment = Segment(number, old, 0, STEPS, STEPS * BATCH, 0.01, Classified(VALIDATED, 399), 0.01)
            self.say(Validated(segment, 0.0))
            self.say(Finished(number, old, State.COMPLETE, ""))
            super().train(assign)

    told = Run(tmp_path, FakeWorld(TellsOfAnother), minutes=0.05, max_trials=2).go()
    assert states(told) == [State.COMPLETE] * 2
    assert len(told.blocks) == 2
    assert [len(attempt.validations) for attempt in told.attempts] == [1, 1]
