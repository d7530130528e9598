"""Who is taken for lost: by one heap of deadlines, against a look at every group."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from aiperf.journal.events import Dispatched, LegBegan
from aiperf.journal.run_files import RunFiles
from aiperf.run.groups import DEAF_SECONDS, Deadlines, Groups, WaitingGroups
from aiperf.wire.messages import Setup
from tests.aiperf.groups import FakeWorld, Obedient, begun
from tests.aiperf.presets import resolved_preset
from tests.journals import Scene, told

GROUPS, SILENCE, PRESET = 4, 3.0, resolved_preset("digits")
JOB = next(event for _, event in told(Scene(minutes=0.1)) if isinstance(event, Dispatched))


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
