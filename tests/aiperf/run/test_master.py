"""The master on a virtual clock: what it dispatches, writes and refuses, and what ends a leg.

In one file, because all of it is asked of one leg that the same scripted groups answer.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.journal.events import (
    TERMINATED,
    Beat,
    Dispatched,
    Ended,
    Event,
    LegBegan,
    LegEnded,
    RankReady,
    Released,
)
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.proposing.jobs import Jobs
from aiperf.rules.reproduction import search
from aiperf.rules.verdict import evidence_of
from aiperf.run.master import SETTLED, Master
from aiperf.tasks.images.tally import Classified
from aiperf.wire.clocks import ClockReading
from aiperf.wire.messages import (
    Assign,
    CheckDevice,
    FabricMeeting,
    Join,
    JoinFabric,
    Meeting,
    Observe,
    Release,
    Setup,
    ToGroup,
)
from aiperf.wire.reports import SEED, Ceiling, FabricPart, Fallback, Ready, Started, StepTime, TimedStep
from aiperf.wire.trial import State
from analysis.readings.run_tables import engines_text
from nas.search import Candidate, Exhausted
from tests.aiperf import groups
from tests.aiperf.groups import (
    BATCH,
    READY,
    STEPS,
    VALIDATED,
    Doing,
    FakeWorld,
    Obedient,
    assigned,
    block,
    lead,
    leader,
    reason,
    states,
    validated,
    works_for,
)
from tests.tables import ComesTo


def saying(**changes: object) -> type[Obedient]:
    """A group whose ranks are ready with something else to say."""

    class Other(Obedient):
        def ready(self, rank: int) -> Ready:
            return replace(super().ready(rank), **changes)  # type: ignore[arg-type]

    return Other


class DiesMeasured(Obedient):
    """When it has measured, before the clock starts."""

    def check_device(self, message: CheckDevice) -> Doing:
        super().check_device(message)
        yield 0.2
        yield from self.die("killed by signal 9")


class DiesReleased(Obedient):
    """When the clock starts."""

    def do(self, message: ToGroup) -> Doing:
        return self.die("killed by signal 9") if isinstance(message, Release) else super().do(message)


class LateAgain(Obedient):
    def set_up(self) -> Doing:
        yield 1.0
        self.say(*map(self.ready, self.ranks))


@pytest.mark.contract
def test_a_whole_run(tmp_path: Path) -> None:
    told = lead(tmp_path, world := FakeWorld(Obedient, Obedient, ranks=2), max_trials=9)
    assert states(told) == [State.COMPLETE] * 9
    assert reason(told) == "trials"
    assert told.leg.began.groups == ((1, 2), (3, 4))
    assert sorted(event.ready.rank for event in told.ranks) == sorted(told.leg.controls) == [1, 2, 3, 4]
    assert sorted(assigned(world, 0) + assigned(world, 1)) == list(range(9))
    assert [assigned(world, group)[0] for group in (0, 1)] == [0, 1], "each has one before any has two"
    assert told.tested is not None
    assert told.tested.trial == told.best.number  # type: ignore[union-attr]
    assert told.blocks.column("examples").sum() == 9 * STEPS * BATCH


class Wanting(Obedient):
    """It wants a next trial during its first one, too."""

    def __init__(self, world: FakeWorld, index: int) -> None:
        super().__init__(world, index)
        self.trained = 1


def test_a_trial_begins_with_what_the_ones_before_it_learnt(
    folders: Iterator[Path], comes_to_what_was_read: ComesTo
) -> None:
    """Each of them where nothing is prepared. All that ended is heard before anything is proposed, but a
    group that has no trial does not wait for what others say: here eight end theirs at the same time."""

    def course(groups: list[type[Obedient]], prepared: int, max_trials: int) -> tuple[str, int | None]:
        """D and E of the trials that were dispatched and that ended; and the parent of the second one."""
        changes = {"search.prepared": prepared}
        told = lead(next(folders), FakeWorld(*groups), max_trials=max_trials, changes=changes)
        assert states(told) == [State.COMPLETE] * max_trials
        kinds: dict[type[Event], str] = {Dispatched: "D", Ended: "E"}
        order = "".join(kinds.get(type(event), "") for event in told.decisions)
        return order, told.trials[1].attempts[0].trial.parent

    comes_to_what_was_read("courses.txt", {**globals(), "course": course})


def test_the_first_group_is_served_first_whoever_was_ready_first_and_all_measure_together(
    tmp_path: Path,
) -> None:
    said: list[str] = []

    class Later(Obedient):
        def set_up(self) -> Doing:
            yield 0.2 * (1 - self.index)
            said.append("ready")
            self.say(*map(self.ready, self.ranks))

        def control(self) -> Doing:
            said.append("control")
            return super().control()

    told = lead(tmp_path, FakeWorld(Later, Later), max_trials=4)
    assert [told.trials[number].attempts[0].group for number in (0, 1)] == [0, 1]
    assert said == ["ready", "ready", "control", "control"]


def first_trials(told: Replay, num: int) -> list[tuple[int, int, int | None]]:
    """Number, group and parent of the first that were dispatched."""
    first = told.attempts[:num]
    return [(attempt.trial.number, attempt.group, attempt.trial.parent) for attempt in first]


def test_the_first_candidates_are_proposed_before_the_clock_and_dispatched_after_it(tmp_path: Path) -> None:
    """Also if a group is lost meanwhile, which measures again. A master collects cycles rarely."""
    world, proposed, before = FakeWorld(Obedient, DiesMeasured, Obedient), list[float](), gc.get_threshold()

    def slowly(master: Master) -> None:
        def passes() -> None:
            world.clock.now += 0.5
            proposed.append(world.clock.now)
            assert (gc.get_threshold(), master.released) == (SETTLED, len(proposed) > 3)

        master.ledger.jobs.proposed = passes

    told = lead(tmp_path, world, before=slowly, max_trials=5)
    assert world.restarts == [1]
    assert (proposed[2], len(proposed)) == (pytest.approx(1.5), 5)
    assert told.leg.released == pytest.approx(1.5)
    assert first_trials(told, 3) == [(0, 0, None), (1, 1, None), (2, 2, None)]
    assert {attempt.dispatch_time for attempt in told.attempts[:3]} == {told.leg.released}
    assert gc.get_threshold() == before


def test_a_candidate_that_its_group_did_not_live_to_see_is_proposed_anew_from_what_is_known_by_then(
    tmp_path: Path,
) -> None:
    world = FakeWorld(Obedient, DiesReleased, Obedient, again=LateAgain)
    told = lead(tmp_path, world, max_trials=4)
    assert states(told) == [State.COMPLETE] * 4
    assert first_trials(told, 3) == [(0, 0, None), (1, 2, None), (2, 0, 0)]
    assert search(evidence_of(told, None)).text == "4 of 4 proposals reproduced"


def test_ranks_meet_where_their_leader_says_with_a_secret_of_the_master(tmp_path: Path) -> None:
    secrets = list[str]()

    class Meeter(Obedient):
        def set_up(self) -> Doing:
            return self.say(Meeting("127.0.0.1", 4242))

        def do(self, message: ToGroup) -> Doing:
            if isinstance(message, Join):
                assert (message.host, message.port) == ("127.0.0.1", 4242)
                secrets.append(message.secret)
                return super().set_up()
            return super().do(message)

    assert states(lead(tmp_path, FakeWorld(Meeter, Meeter, ranks=2), max_trials=2)) == [State.COMPLETE] * 2
    assert [len(secret) for secret in secrets] == [32, 32]
    assert len(set(secrets)) == 2, "each group has its own"


def test_all_ranks_measure_the_fabric_where_the_first_says_and_only_once(tmp_path: Path) -> None:
    joined = list[JoinFabric]()

    class Measures(Obedient):
        """The first rank of all says where to meet; a rank sends its part, and is ready."""

        def do(self, message: ToGroup) -> Doing:
            if isinstance(message, Setup) and message.fabric_seconds:
                address = ("10.0.0.1", 4242) if self.index == 0 else ()
                return self.say(FabricMeeting(self.index + 1, *address))
            if isinstance(message, JoinFabric):
                joined.append(message)
                self.say(*(FabricPart(rank, f"node{rank}", rank - 1, pairs=(1e9,)) for rank in self.ranks))
                return super().set_up()
            return super().do(message)

    told = lead(tmp_path, FakeWorld(*[Measures] * 2, again=Measures), max_trials=2, minutes=60.0)
    assert states(told) == [State.COMPLETE] * 2
    assert told.leg.fabric is not None
    assert (told.leg.fabric.ranks, told.leg.fabric.rounds, told.leg.fabric.missing) == (2, ((1e9,),), ())
    assert {(each.host, each.port, len(each.secret)) for each in joined} == {("10.0.0.1", 4242, 32)}

    class Dies(Measures):
        """Before it said anything: the others must not wait for it."""

        def do(self, message: ToGroup) -> Doing:
            return self.die("killed by signal 9") if isinstance(message, Setup) else super().do(message)

    joined.clear()
    told = lead(tmp_path / "dies", FakeWorld(Dies, Measures, again=Measures), max_trials=2, minutes=60.0)
    assert states(told) == [State.COMPLETE] * 2
    assert [each.host for each in joined] == [""], "the group that was started again expects no such message"
    assert told.leg.fabric is not None
    assert told.leg.fabric.missing == (1,)
    alone = lead(tmp_path / "alone", FakeWorld(Obedient), max_trials=1, minutes=60.0)
    assert alone.leg.fabric is None


def test_a_trial_whose_engine_failed_goes_on_and_the_journal_and_the_user_are_told(tmp_path: Path) -> None:
    class Falls(Obedient):
        def train(self, assign: Assign) -> Doing:
            number, attempt = assign.trial.number, assign.attempt
            self.say(Started(number, attempt, "key", 0.01, "graphed", "faster", (2 if number else 1,)))
            if number == 1:
                self.say(Fallback(number, attempt, "graphed", "the loss is 2 instead of 1"))
            return self.work(assign)

    told = lead(tmp_path, world := FakeWorld(Falls), max_trials=3)
    assert states(told) == [State.COMPLETE] * 3
    assert [attempt.fallback is not None for attempt in told.attempts] == [False, True, False]
    assert engines_text(told) == [
        "graphed (faster): 2 of 3 trials",
        "eager, because graphed failed (the loss is 2 instead of 1): 1 of 3 trials",
        "2 threads in 2 trials, 1 in 1",
    ]
    assert world.said == ["trial 1: no graphed steps, eager ones instead: the loss is 2 instead of 1"]


# Times


def test_no_trial_and_no_leg_ends_before_its_work(tmp_path: Path) -> None:
    """The news of a trial's end may travel faster than that of its last validation, by milliseconds."""

    class Late(Obedient):
        def end(self, assign: Assign, state: State, reason: str = "", **more: object) -> Doing:
            return super().end(assign, state, reason, age_seconds=0.01)

    told = lead(tmp_path, FakeWorld(Late, Late), max_trials=4)
    ends = [
        (attempt.validations[-1].end, attempt.ended) for attempt in told.attempts if attempt.ended is not None
    ]
    assert len(ends) == 4
    assert all(worked == ended for worked, ended in ends)
    assert told.leg.end == max(ended for _, ended in ends)


def test_old_news_is_of_when_it_happened(tmp_path: Path) -> None:
    class TellsLate(Obedient):
        def work(self, assign: Assign) -> Doing:
            yield 0.8
            self.say(block(assign, age=0.5), validated(assign, Classified(VALIDATED, 300), age=0.4))
            self.end(assign, State.COMPLETE, age_seconds=0.3)

    (attempt,) = (told := lead(tmp_path, FakeWorld(TellsLate), minutes=0.05, max_trials=1)).attempts
    (validation,) = attempt.validations
    assert attempt.ended is not None
    at = attempt.ended + 0.3
    assert told.blocks.column("ends")[0] == pytest.approx(at - 0.5)
    assert validation.end == pytest.approx(at - 0.4)
    assert attempt.age_seconds == 0.0, "it lies in the end, and is not said twice"


def test_news_of_an_attempt_that_was_taken_away_is_not_heard(tmp_path: Path) -> None:
    """In each of its three kinds; the group is not lost by it, and the journal is whole."""

    class TellsOfAnother(Obedient):
        def train(self, assign: Assign) -> Doing:
            other = replace(assign, attempt=assign.attempt + 1)
            self.say(block(other), validated(other, Classified(VALIDATED, 399)))
            self.end(other, State.COMPLETE)
            return super().train(assign)

    told = lead(tmp_path, FakeWorld(TellsOfAnother), max_trials=2)
    assert states(told) == [State.COMPLETE] * 2
    assert len(told.blocks) == 2
    assert [len(attempt.validations) for attempt in told.attempts] == [1, 1]


def test_a_leg_that_has_nothing_to_tell_beats(tmp_path: Path) -> None:
    lead(tmp_path, FakeWorld(works_for(30.0)), max_trials=1)
    lines = read_journal(RunFiles(tmp_path / "run").journal)
    assert sum(isinstance(line.event, Beat) for line in lines) == 5


# What ends a leg


@pytest.mark.contract
def test_the_deadline_ends_a_run_to_the_microsecond(tmp_path: Path) -> None:
    """Else a ranked run of an hour would be too short."""
    told = lead(tmp_path, FakeWorld(Obedient, Obedient), minutes=0.01)
    assert reason(told) == "deadline"
    assert told.span_seconds == pytest.approx(0.6, abs=1e-6)
    assert State.COMPLETE in states(told)


def test_nothing_is_dispatched_that_was_proposed_until_after_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No group would begin it, and it would stay in the list as one that waits."""
    proposed, world = Jobs.next, FakeWorld(Obedient)

    def slowly(jobs: Jobs, group: int) -> Dispatched | None:
        world.clock.now += 1.0
        return proposed(jobs, group)

    monkeypatch.setattr(Jobs, "next", slowly)
    told = lead(tmp_path, world, minutes=0.025)
    assert (reason(told), len(told.trials)) == ("deadline", 1)


def test_a_trial_that_ends_may_have_children_where_there_were_none(tmp_path: Path) -> None:
    asked: list[int] = []

    def exhaust(master: Master) -> None:
        search = master.ledger.jobs.search
        ask = search.ask

        def sometimes(number: int, round_: int) -> Candidate:
            asked.append(number)
            if number and asked.count(number) == 1:
                raise Exhausted("none yet")
            return ask(number, round_)

        search.ask = sometimes  # type: ignore[method-assign]

    told = lead(tmp_path, FakeWorld(Obedient, Obedient), before=exhaust, max_trials=9)
    assert (reason(told), states(told)) == ("trials", [State.COMPLETE] * 9)
    assert asked == [number for number in range(2, 9) for _ in range(2)], "again at a trial's end, not before"


def test_a_further_leg_has_what_is_left_of_the_span(tmp_path: Path) -> None:
    def after_another(master: Master) -> None:
        begin = LegBegan(0, "", (), master.world.groups), RankReady(0, READY, 0.0), Released(1.2)
        for t, event in (*((0.0, event) for event in begin), (0.7, LegEnded(TERMINATED, 0.7))):
            master.ledger.write(event, t)

    told = lead(tmp_path, FakeWorld(Obedient), before=after_another, minutes=0.02)
    assert told.num_legs == 2
    assert [told.leg.span_seconds, told.span_seconds] == pytest.approx([0.5, 1.2])


# Failures of a trial


def test_a_group_whose_trials_fail_pauses_and_is_served_again(tmp_path: Path) -> None:
    class FailsThreeTimes(Obedient):
        def train(self, assign: Assign) -> Doing:
            if assign.trial.number < 3:
                return self.end(assign, State.FAILED, f"fault {'abc'[assign.trial.number]}")
            return super().train(assign)

    told = lead(tmp_path, FakeWorld(FailsThreeTimes), minutes=0.1, max_trials=6)
    assert states(told) == [State.FAILED] * 3 + [State.COMPLETE] * 3
    assert (reason(told), told.leg.losses) == ("trials", [])
    third = told.trials[2].attempts[0]
    assert third.ended is not None
    assert third.reason == "fault c"
    assert told.trials[4].attempts[0].dispatch_time >= third.ended + 1.0, "it had one to prepare, and paused"


class Fails(Obedient):
    def train(self, assign: Assign) -> Doing:
        yield 0.1
        self.end(assign, State.FAILED, f"rank {self.index} on a: no {assign.trial.number}.png")


class ValidatesFirst(Obedient):
    ends_as = State.COMPLETE

    def work(self, assign: Assign) -> Doing:
        self.say(block(assign), validated(assign, Classified(VALIDATED, 300)))
        yield 1.0
        self.end(assign, self.ends_as, "" if self.ends_as is State.COMPLETE else "rank 9 on b: no 77.png")


class FailsLate(ValidatesFirst):
    ends_as = State.FAILED


def test_what_does_not_fit_is_tried_with_half_the_batch(tmp_path: Path) -> None:
    class OutOfMemory(Obedient):
        def train(self, assign: Assign) -> Doing:
            if assign.trial.hyper.batch_size > 25:
                return self.end(assign, State.FAILED, "no memory", out_of_memory=True)
            return super().train(assign)

    told = lead(tmp_path, FakeWorld(OutOfMemory, ranks=2), max_trials=2)
    assert states(told) == [State.COMPLETE] * 2
    batches = [attempt.trial.hyper.batch_size for attempt in told.trials[0].attempts]
    assert batches == [50, 24], "half of it, which two ranks share evenly"


# What is refused before the clock runs


class WithDevices(Obedient):
    """Two of eight."""

    def ready(self, rank: int) -> Ready:
        return replace(super().ready(rank), device_id="-ab"[rank], visible_devices=8)


def another_clock() -> FakeWorld:
    world = FakeWorld(Obedient, Obedient)
    world.clocks[2] = ClockReading(3.0, 0.01)
    return world


class Closes(Obedient):
    def assigned(self, assign: Assign) -> Doing:
        return self.end(assign, State.WAITING)


def test_what_ends_a_leg_and_what_is_refused_before_its_clock_runs(
    folders: Iterator[Path], comes_to_what_was_read: ComesTo
) -> None:
    names = {**vars(groups), **globals(), "led": leader(folders)}
    comes_to_what_was_read("ends.txt", names)


def test_a_group_that_is_started_again_is_told_what_was_measured(tmp_path: Path) -> None:
    times = {"eager": StepTime(0.1), "graphed": StepTime(0.05, 1.0)}
    seeds = {"eager": StepTime(0.02)}
    timed = (TimedStep(SEED, 3, "eager", 0.02, 5),)

    class Measured(Obedient):
        def measured(self, rank: int) -> Ceiling:
            own = timed if rank == 1 else ()
            return replace(super().measured(rank), steps=times, seed_steps=seeds, timed=own, threads=3)

        def train(self, assign: Assign) -> Doing:
            return self.die("broken")

    world = FakeWorld(Measured, Obedient, ranks=2)
    lead(tmp_path, world, silence_seconds=5.0, minutes=0.03, max_trials=4)
    assert world.restarts == [0]
    setup, observe, release, *others = world.workers[0].heard
    assert (type(setup), type(observe)) == (Setup, Observe)
    assert observe in world.workers[1].heard
    assert isinstance(release, Release)
    assert (release.steps, release.threads, release.block_seconds) == (times, {"1": 3, "2": 3}, 1.0)
    assert (release.seed_steps, release.timed) == (seeds, {"1": timed})
    assert release.seconds_left is not None
    assert 0.0 < release.seconds_left <= 1.8
    assert not any(isinstance(message, Release) for message in others), "once, not for each of its ranks"


# Weights


def test_no_weights_are_dropped_before_they_are_told_of(tmp_path: Path) -> None:
    files, missing, present = RunFiles(tmp_path / "run"), list[int](), list[int]()

    class Keeper(Obedient):
        """It writes the file before it tells, as a worker does."""

        def train(self, assign: Assign) -> Doing:
            parent = assign.trial.parent
            if parent is not None and not files.weights(parent).exists():
                missing.append(parent)
            files.weights_directory.mkdir(exist_ok=True)
            present.append(len(list(files.kept_weights())))
            yield from super().train(assign)

        def end(self, assign: Assign, state: State, reason: str = "", **more: object) -> Doing:
            files.weights(assign.trial.number).write_bytes(b"weights")
            return super().end(assign, state, reason, weights="hash")

    told = lead(tmp_path, FakeWorld(Keeper, Keeper, Keeper), max_trials=40)
    assert (states(told), missing) == ([State.COMPLETE] * 40, [])
    kept = {int(path.stem) for path in files.kept_weights()}
    assert told.best is not None
    assert told.best.number in kept
    assert len(kept) <= max(present) < 12, "and those of the dead are gone, at any time"
