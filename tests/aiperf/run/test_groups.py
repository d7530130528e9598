"""Groups: how long one may be silent, how long it pauses when its trials fail, and who is taken for lost."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiperf.clock import SystemClock
from aiperf.errors import JournalError
from aiperf.journal.events import Beat, Dispatched, Ended, LegBegan, Opened, Stalled
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.journal.run_files import RunFiles
from aiperf.run.group import REST_SECONDS, SLOWER, Group, step_seconds
from aiperf.run.groups import DEAF_SECONDS, Deadlines, Groups, WaitingGroups
from aiperf.run.ledger import Ledger
from aiperf.wire.messages import Setup
from aiperf.wire.reports import Ceiling, Finished, Rate
from aiperf.wire.trial import State
from tests.aiperf.groups import FakeWorld, Obedient, begun
from tests.aiperf.presets import resolved_preset
from tests.journals import Scene, told

GROUPS, SILENCE, PRESET = 4, 3.0, resolved_preset("digits")
JOB, OTHER = [event for _, event in told(Scene(minutes=0.1)) if isinstance(event, Dispatched)][:2]


@dataclass
class Looking:
    """What is true of silence, found by looking at every group each time."""

    looked: float = 0.0
    heard: list[float] = field(default_factory=lambda: [0.0] * GROUPS)

    def look(self, now: float) -> None:
        deaf, self.looked = now - self.looked, now
        if deaf > DEAF_SECONDS:
            self.heard = [min(now, heard + deaf) for heard in self.heard]

    def lost(self, groups: Groups, now: float) -> list[int]:
        self.look(now)
        return [
            index
            for index, group in enumerate(groups.each)
            if group.assigned and now - self.heard[index] > group.patience
        ]


MOVES = st.tuples(
    st.sampled_from(["wait", "wait", "hear", "work", "work", "block", "done"]),
    st.integers(0, GROUPS - 1),
    st.sampled_from([0.0, 0.25, 0.25, 0.25, 0.75, 2.0, 2.75, 20.0]),
)


@settings(max_examples=50)
@given(moves=st.lists(MOVES, min_size=40, max_size=80))
def test_nobody_is_overlooked_and_nobody_is_lost_too_early(moves: list[tuple[str, int, float]]) -> None:
    world, model = FakeWorld(*[Obedient] * GROUPS), Looking()
    clock = world.clock
    with (
        tempfile.TemporaryDirectory() as folder,
        begun(RunFiles(Path(folder) / "run"), PRESET, clock) as ledger,
    ):
        ledger.write(LegBegan(0, "now", ("aiperf-hpc",), world.groups))
        groups = Groups(ledger, world, Setup(PRESET, ledger.replay.opened.seed_graph, folder), SILENCE)
        for what, index, seconds in moves:
            clock.now += seconds
            group = groups.each[index]
            if what != "wait":
                groups.heard(index)
                model.heard[index] = clock.now
            if what == "work" and group.alive and not group.assigned:
                group.assign(JOB, group.heard, {})
            elif what == "block":
                group.await_block(seconds)
            elif what == "done":
                group.drop(JOB.trial.number, {})
            groups.note(index)
            clock.now += seconds
            expected = model.lost(groups, clock.now)
            before = len(groups.ledger.replay.leg.losses)
            groups.check_silence()
            found = groups.ledger.replay.leg.losses[before:]
            assert [loss.group for loss in found] == expected
            for loss in found:
                assert loss.reason == f"was silent for {clock.now - model.heard[loss.group]:.0f} s"
            assert groups.at_work == any(each.assigned for each in groups.each)
            assert set(groups.alive) == {index for index, each in enumerate(groups.each) if each.alive}


def test_a_deadline_that_is_put_off_again_and_again_has_one_entry() -> None:
    due = [1.0, 5.0]
    deadlines = Deadlines(due.__getitem__)
    for index in (0, 1):
        deadlines.note(index)
    for second in range(100):
        due[0] = second + 10.0
        deadlines.note(0)
        assert deadlines.passed(second) == ([1] if second == 6 else [])
        assert len(deadlines._heap) <= 2


def test_who_has_nothing_is_served_first_and_else_who_came_first() -> None:
    waiting = WaitingGroups()
    assert not waiting
    for index, num_trials in ((3, 1), (1, 1), (2, 0), (3, 1), (0, 0)):
        waiting.put(index, num_trials)
    order = []
    while waiting:
        order.append((waiting.idle, waiting.first))
        assert waiting.first is not None
        waiting.remove(waiting.first)
    assert order == [(2, 2), (0, 0), (None, 3), (None, 1)]
    waiting.put(7, 1)
    waiting.put(7, 0)
    assert (waiting.idle, waiting.first) == (7, 7)
    waiting.remove(7)
    assert not waiting


# One group


SLOW = Ceiling(1, "a", "cpu", "fp32", 64, Rate(8e9, 8e9, 0.0), Rate(1e9, 1e9, 0.0), seed=Rate(3e6, 2e6, 0.0))
SLOWEST = replace(SLOW, rank=2, seed=Rate(2e6, 1e6, 0.0))
OPERATIONS = 50 * 2 * (JOB.forward[0] + JOB.backward[0])


@pytest.mark.parametrize(
    ("ceilings", "seconds"),
    [
        ([SLOW], OPERATIONS / 2e6),
        ([SLOW, replace(SLOW, rank=2)], OPERATIONS / 4e6),
        ([SLOW, SLOWEST], OPERATIONS / 2e6),  # the slowest rank of a group decides
        ([replace(SLOW, seed=None)], OPERATIONS / (8e9 / SLOWER)),  # too slow for a step
        ([], 0.0),
    ],
)
def test_a_step_takes_its_operations_over_the_rate_of_the_seed(
    ceilings: list[Ceiling], seconds: float
) -> None:
    assert step_seconds(JOB, ceilings) == pytest.approx(seconds)


def test_a_group_wants_one_trial_after_the_last_it_was_given() -> None:
    """Also if the one before that is still being written."""
    group, third = Group((1,), silence_seconds=10.0), replace(JOB, trial=replace(JOB.trial, number=99))
    wanted = [group.wants_more(0.0)]
    for job in (JOB, OTHER, third):
        group.assign(job, 0.0, {})
        wanted.append(group.wants_more(0.0))
        group.wanting = job.trial.number, job.attempt
        wanted.append(group.wants_more(0.0))
    assert wanted == [True, False, True, False, True, False, True]
    group.drop(JOB.trial.number, {})
    assert group.wants_more(0.0)
    group.prepared = 0
    assert not group.wants_more(0.0)
    group.lose()
    group.alive, group.prepared = True, 1
    group.assign(replace(third, attempt=2), 0.0, {})
    assert not group.wants_more(0.0)


def test_a_group_whose_trials_fail_pauses_ever_longer() -> None:
    group = Group((1,), silence_seconds=10.0)
    pauses = []
    for _ in range(9):
        group.rest_after(State.FAILED, 100.0)
        pauses.append(max(0.0, group.rests_until - 100.0))
    assert pauses == [0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0, REST_SECONDS, REST_SECONDS]
    assert not group.wants_more(100.0)
    assert group.wants_more(100.0 + REST_SECONDS)
    group.rest_after(State.COMPLETE, 200.0)
    group.rest_after(State.FAILED, 200.0)
    assert group.wants_more(200.0)


# The ledger notices that it could not write


@contextmanager
def leg(files: RunFiles) -> Iterator[Ledger]:
    with begun(files, resolved_preset("digits"), SystemClock()) as ledger:
        ledger.write(LegBegan(0, "now", ("aiperf-hpc",), ((1,),)), 20.0)  # it may take long to come so far
        yield ledger


def test_no_trial_fails_because_the_run_directory_was_renamed(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "run")
    failed = Ended(Finished(0, 1, State.FAILED, "0.safetensors cannot be written"), 20.1)
    with leg(files) as ledger:
        ledger.write(Beat(), 20.0)  # it has just looked
        files.directory.rename(tmp_path / "elsewhere")
        with pytest.raises(JournalError, match=r"is gone: it is .*elsewhere"):
            ledger.write(failed, 20.1)
    lines = read_journal(RunFiles(tmp_path / "elsewhere").journal)
    assert [type(line.event) for line in lines] == [Opened, LegBegan, Beat]


def test_a_stall_is_written_down_before_the_first_line_after_it(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "run")
    with leg(files) as ledger:
        ledger.write(Beat(), 29.0)
        ledger.write(Beat(), 69.0)
    lines = read_journal(files.journal)
    assert [type(line.event) for line in lines] == [Opened, LegBegan, Beat, Stalled, Beat]
    assert [(stall.begin, stall.end) for stall in replay(lines).leg.stalls] == [(29.0, 69.0)]
    assert replay(lines).leg.longest_silence == 9.0
