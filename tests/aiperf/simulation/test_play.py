"""The real master, search and journal on a simulated machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.journal.events import Origin
from aiperf.score.credit import credit, work
from aiperf.score.lineage import recount
from aiperf.score.score import score
from aiperf.simulation.figures import shares_of_time, size_figures
from aiperf.simulation.machine import SimulatedMachine
from aiperf.trial import State
from nas.ops import OPS
from tests.aiperf.simulation.simulated import NEVER, Played, config, steady


def test_the_same_seed_writes_the_same_journal(tmp_path: Path) -> None:
    first, second, other = (
        Played(tmp_path / name / "run", SimulatedMachine(2, 8), steady(), config(minutes, random_seed=seed))
        for name, minutes, seed in (("a", 5.0, 1), ("b", 5.0, 1), ("c", 5.0, 2))
    )
    assert first.text == second.text
    assert first.text != other.text
    assert first.replay.opened.origin is Origin.SIMULATED
    assert not first.replay.faults


def test_every_operation_of_the_courses_is_credited(tmp_path: Path) -> None:
    """Where nothing fails nothing is lost, and the journal gives the same result as the live run."""
    played = Played(tmp_path / "run", SimulatedMachine(3, 8), steady(), config())
    told = played.replay
    counts = recount(told).counts
    done = work(told, counts, credit(told))
    by_hand = sum(
        counts[attempt.trial.number].train.price(OPS) * attempt.examples
        + sum(counts[attempt.trial.number].evaluate.price(OPS) * v.segment.of for v in attempt.validations)
        for attempt in told.attempts
    )
    assert done.operations == by_hand > 0
    assert score(told, counts) == score(played.live, counts)
    assert told.tested is not None
    busy, useful = shares_of_time(told)
    assert busy == useful > 0.99
    figures = size_figures(told, played.world, played.files.journal, 3, 1.0)
    assert (figures.groups, figures.devices, figures.groups_lost, figures.lost_work) == (3, 24, 0, 0.0)
    assert figures.written_bytes > 0


def test_a_lost_node_is_named_and_what_was_completed_stays(tmp_path: Path) -> None:
    fails = replace(NEVER, node_hours=1.0)
    played = Played(tmp_path / "run", SimulatedMachine(4, 8), steady(failures=fails), config(60.0))
    told = played.replay
    leg = told.leg
    assert leg.ended is not None
    assert leg.ended.reason == "deadline"
    assert 0 < len(leg.losses) < 4
    assert {each.reason for each in leg.losses} == {f"node{each.group + 1:04} failed" for each in leg.losses}
    lost = {each.group for each in leg.losses}
    before = [
        attempt for attempt in told.attempts if attempt.group in lost and attempt.state is State.COMPLETE
    ]
    credited = credit(told)
    assert before
    assert all(credited.has(attempt, v) for attempt in before for v in attempt.validations)
    busy, useful = shares_of_time(told)
    assert useful < busy < 1 - len(lost) / 4 / 60
    again = [attempt for attempt in told.attempts if attempt.number > 1]
    assert {attempt.trial.number for attempt in again} <= {
        attempt.trial.number for attempt in told.attempts if attempt.state is State.LOST
    }


def test_processes_crash_and_their_groups_go_on(tmp_path: Path) -> None:
    crashes = replace(NEVER, process_hours=2.0)
    told = Played(tmp_path / "run", SimulatedMachine(2, 8), steady(failures=crashes), config(60.0)).replay
    assert told.leg.losses
    assert "crashed" in told.leg.losses[0].reason
    group, t = told.leg.losses[0].group, told.leg.started
    assert any(
        attempt.group == group and attempt.dispatch_time > t[group] and attempt.state is not State.LOST
        for attempt in told.attempts
    )


def test_groups_may_be_parts_of_a_node_and_several_nodes(tmp_path: Path) -> None:
    for per_trial, groups in ((4, 4), (16, 1)):
        machine = SimulatedMachine(2, 8, per_trial)
        told = Played(tmp_path / str(per_trial), machine, steady(), config(10.0)).replay
        assert len(told.leg.began.groups) == groups
        assert shares_of_time(told)[0] == pytest.approx(1.0, abs=0.02)
