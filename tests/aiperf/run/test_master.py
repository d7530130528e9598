"""The master against groups that are threads: what it dispatches, writes and refuses."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.config import with_overrides
from aiperf.errors import WorldError
from aiperf.files import RunFiles
from aiperf.journal.events import TERMINATED, Dispatched, LegBegan, LegEnded, RankReady, Released
from aiperf.proposing.jobs import Jobs
from aiperf.rules.eligibility import ROUNDING_SECONDS
from aiperf.run.master import Master
from aiperf.trial import State
from aiperf.wire.messages import (
    Assign,
    Ceiling,
    Fallback,
    Finished,
    Rate,
    Ready,
    Release,
    Setup,
    Started,
    StepTime,
)
from analysis.readings.facts import engines_text
from nas.search import Candidate, Exhausted
from tests.aiperf.groups import BATCH, STEPS, FakeWorld, Meeter, Obedient
from tests.aiperf.legs import Run, assigned, states
from tests.journals import READY


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
    # Each has one to train before any has a second one.
    assert [assigned(world, group)[:1] for group in (0, 1)] == [[0], [1]]
    assert told.tested is not None
    assert told.tested.trial == told.best.number  # type: ignore[union-attr]
    assert told.blocks.column("examples").sum() == 9 * STEPS * BATCH


def test_the_second_trial_begins_with_what_the_first_one_learnt(tmp_path: Path) -> None:
    told = Run(tmp_path, FakeWorld(Obedient), max_trials=4).go()
    assert told.trials[1].attempts[0].trial.parent == 0
    order = [type(event).__name__ for event in told.decisions]
    assert order[1:4] == ["Dispatched", "Ended", "Dispatched"]


def test_where_nothing_is_prepared_a_trial_is_proposed_when_the_one_before_has_ended(tmp_path: Path) -> None:
    run = Run(tmp_path, FakeWorld(Obedient), max_trials=5)
    run.config = with_overrides(run.config, {"search.prepared": 0})
    told = run.go()
    order = [type(event).__name__ for event in told.decisions]
    assert [name for name in order if name in ("Dispatched", "Ended")] == ["Dispatched", "Ended"] * 5
    assert states(told) == [State.COMPLETE] * 5


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


def test_the_deadline_ends_a_run(tmp_path: Path) -> None:
    began = time.monotonic()
    told = Run(tmp_path, FakeWorld(Obedient, Obedient), minutes=0.01).go()
    assert time.monotonic() - began < 5
    assert told.leg.ended is not None
    assert told.leg.ended.reason == "deadline"
    assert told.span_seconds == pytest.approx(0.6, abs=0.01)
    assert 0.6 - told.span_seconds < ROUNDING_SECONDS  # else a ranked run of an hour would be too short
    assert State.COMPLETE in states(told)


def test_nothing_is_dispatched_that_was_proposed_until_after_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No group would begin it, and it would stay in the list as one that waits."""
    proposed = Jobs.next

    def slowly(jobs: Jobs, group: int) -> Dispatched | None:
        time.sleep(1.0)
        return proposed(jobs, group)

    monkeypatch.setattr(Jobs, "next", slowly)
    told = Run(tmp_path, FakeWorld(Obedient), minutes=0.025).go()
    assert told.leg.ended is not None
    assert told.leg.ended.reason == "deadline"
    assert len(told.trials) <= 1


def test_a_target_ends_a_run(tmp_path: Path) -> None:
    told = Run(tmp_path, FakeWorld(Obedient), target_error=0.16).go()
    assert told.leg.ended is not None
    assert told.leg.ended.reason == "target"
    assert told.best is not None
    assert told.best.error is not None
    assert told.best.error <= 0.16
    assert len(told.trials) < 9


def test_a_trial_whose_engine_failed_goes_on_and_the_journal_and_the_user_are_told(tmp_path: Path) -> None:
    class Falls(Obedient):
        def train(self, assign: Assign) -> None:
            number, attempt = assign.trial.number, assign.attempt
            self.say(Started(number, attempt, "key", 0.01, "graphed", "faster"))
            if number == 1:
                self.say(Fallback(number, attempt, "graphed", "the loss is 2 instead of 1"))
            self.work(assign)

    run = Run(tmp_path, FakeWorld(Falls), max_trials=3)
    told = run.go()
    assert states(told) == [State.COMPLETE] * 3
    assert [attempt.fallback is not None for attempt in told.attempts] == [False, True, False]
    assert engines_text(told) == [
        "graphed (faster): 2 of 3 trials",
        "eager, because graphed failed (the loss is 2 instead of 1): 1 of 3 trials",
    ]
    assert "trial 1: no graphed steps, eager ones instead: the loss is 2 instead of 1" in run.said


def test_a_group_that_is_started_again_is_told_what_was_measured(tmp_path: Path) -> None:
    times = {"eager": StepTime(0.1), "graphed": StepTime(0.05, 1.0)}

    class Dies(Obedient):
        def ceiling(self) -> None:
            for rank in self.ranks:
                rate = Rate(1e11, 9e10, 0.01)
                self.say(Ceiling(rank, "node1", "a device", "bf16", 2048, rate, rate, steps=times))

        def train(self, assign: Assign) -> None:
            self.die("broken")

    world = FakeWorld(Dies)
    Run(tmp_path, world, max_trials=2).go()
    assert [message.steps for message in world.workers[0].heard if isinstance(message, Release)] == [times]


def test_where_nothing_new_can_be_found_what_is_in_flight_is_trained_to_its_end(tmp_path: Path) -> None:
    run = Run(tmp_path, FakeWorld(Obedient, Obedient), minutes=5)
    run.config = with_overrides(run.config, {"search.bounds.max_operations": 1.0})
    told = run.go()
    assert told.leg.ended is not None
    assert told.leg.ended.reason.startswith("exhausted: no new architecture found within the bounds")
    assert states(told) == [State.COMPLETE]
    assert told.tested is not None


def test_a_trial_that_ends_may_have_children_where_there_were_none(tmp_path: Path) -> None:
    run = Run(tmp_path, FakeWorld(Obedient, Obedient), max_trials=9)
    asked: list[int] = []

    def exhaust(master: Master) -> None:
        search = master.ledger.jobs.search
        ask = search.ask

        def sometimes(number: int) -> Candidate:
            asked.append(number)
            if number and asked.count(number) == 1:
                raise Exhausted("none yet")
            return ask(number)

        search.ask = sometimes  # type: ignore[method-assign]

    run.before = exhaust
    told = run.go()
    assert states(told) == [State.COMPLETE] * 9
    assert told.leg.ended is not None
    assert told.leg.ended.reason == "trials"
    assert all(asked.count(number) == 2 for number in range(1, 9)), "asked again at a trial's end, not before"


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
    assert told.trials[0].attempts[0].ended.finished.reason == "rank 1 on node1: ValueError: no"  # type: ignore[union-attr]
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


# What is refused before the clock runs


def test_ranks_that_differ_are_refused(tmp_path: Path) -> None:
    class OtherCode(Obedient):
        def ready(self, rank: int) -> Ready:
            return replace(super().ready(rank), host="node2", code_hash="other")

    with pytest.raises(WorldError, match="differ in code hash; use the same"):
        Run(tmp_path, FakeWorld(Obedient, OtherCode), max_trials=3).go()


def with_devices(*ids: str, visible: int) -> type[Obedient]:
    class WithDevices(Obedient):
        def ready(self, rank: int) -> Ready:
            return replace(super().ready(rank), device_id=ids[rank - 1], visible_devices=visible)

    return WithDevices


def test_devices_that_are_idle_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="node1 shows 8 devices to 2 training rank"):
        Run(tmp_path, FakeWorld(with_devices("a", "b", visible=8), ranks=2), max_trials=3).go()


def test_one_rank_for_each_device(tmp_path: Path) -> None:
    Run(tmp_path, FakeWorld(with_devices("a", "b", visible=2), ranks=2), max_trials=1).go()


def test_a_directory_that_is_not_shared_is_told_of(tmp_path: Path) -> None:
    class Apart(Obedient):
        def ready(self, rank: int) -> Ready:
            return replace(super().ready(rank), host="node2", sees_run=False)

    run = Run(tmp_path, FakeWorld(Obedient, Apart), max_trials=1)
    run.go()
    assert run.said == [
        (f"{tmp_path}/run is not shared with node2: weights, and at the end rank logs, are sent over MPI")
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


def test_a_further_leg_has_what_is_left_of_the_span(tmp_path: Path) -> None:
    run = Run(tmp_path, FakeWorld(Obedient), minutes=0.02)

    def after_another(master: Master) -> None:
        begin = LegBegan(0, "", (), master.world.groups), RankReady(0, READY, 0.0), Released(1.2)
        for t, event in (*((0.0, event) for event in begin), (0.7, LegEnded(TERMINATED, 0.7))):
            master.ledger.write(event, t)

    run.before = after_another
    told = run.go()
    assert told.num_legs == 2
    assert told.leg.span_seconds == pytest.approx(0.5, abs=0.01)
    assert told.span_seconds == pytest.approx(1.2, abs=0.01)
