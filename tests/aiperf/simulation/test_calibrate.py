"""What a journal tells of its machine: of a simulated run it is known what that must be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aiperf.errors import JournalError
from aiperf.journal.events import FabricMeasured, LegBegan, Line, RankAlike, RankReady, Released
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.pretending.assumptions import NodeNetwork, Speed, Spread, StartUp, Trials, assumed
from aiperf.score.fabric import is_known
from aiperf.simulation.calibrate import calibrate
from aiperf.simulation.fits import fitted_errors, not_negative
from aiperf.simulation.prediction import machine_of, prediction_rows, throughput, work_seconds
from aiperf.simulation.simulated_machine import SimulatedMachine
from aiperf.wire.reports import Fabric, FabricNode, TimedAllReduce
from tests.aiperf.simulation.simulated import Played, config, steady

TRUE = steady(
    speed=Speed(6e13, 0.004, 3e-5, 1.3),
    trials=Trials(0.7, 1.5, 2.0),
    spread=Spread(0.02, 0.05),
    startup=StartUp(20.0, 0.0, 0.0, 30.0),
)
LITTLE = {"training.validate_every_examples": 100_000, "data.training_examples": 200_000}
SHORT = config(30.0, **{"training.epochs": [1], **LITTLE})


RECORDED = Path(__file__).parents[2] / "recorded/language/journal.jsonl"


def test_a_simulated_run_gives_its_assumptions_back(tmp_path: Path) -> None:
    played = Played(tmp_path / "run", SimulatedMachine(4, 1), TRUE, SHORT)
    found = calibrate(read_journal(played.files.journal), replace(assumed("h100"), failures=TRUE.failures))
    known = found.assumptions
    assert known.speed.ops_per_second == pytest.approx(6e13, rel=0.05)
    assert known.speed.validation == pytest.approx(1.3, rel=0.05)
    assert known.trials.gap_seconds == pytest.approx(0.7, abs=0.05)
    assert known.trials.prepare_seconds == pytest.approx(1.5 + 0.7, abs=0.05), "its first gap is part of it"
    assert known.trials.first_step_seconds == pytest.approx(2.0, abs=0.3)
    assert known.spread.block == pytest.approx(0.05, rel=0.2)
    assert known.spread.node == pytest.approx(0.02, rel=0.7)
    assert known.spread.network == pytest.approx(0.0, abs=0.01)
    assert known.startup.measuring_seconds == pytest.approx(30.0, abs=0.1)
    assert {each.names for each in found.found if not each.known} >= {"failures", "group"}
    again = Played(tmp_path / "again", machine_of(played.replay), known, played.replay.opened.config)
    was, modelled = throughput(played.replay), throughput(again.replay)
    assert modelled.utilisation == pytest.approx(was.utilisation, rel=0.01)
    seconds = work_seconds(played.replay, known)
    assert seconds[1] == pytest.approx(seconds[0], rel=0.01)
    rows = prediction_rows(was, modelled, [was], seconds)
    names = ["utilisation", "trials complete", "steps per second", "examples per second", "ops per second"]
    assert [row[0] for row in rows[1:]] == [*names, "seconds of the same work"]
    assert all(len(row) == 6 for row in rows)


def test_networks_that_differ_at_equal_operations_are_seen(tmp_path: Path) -> None:
    uneven = replace(TRUE, spread=Spread(0.0, 0.05, network=0.05))
    played = Played(tmp_path / "run", SimulatedMachine(1, 1), uneven, SHORT)
    found = calibrate(read_journal(played.files.journal), assumed("h100"))
    assert found.assumptions.spread.network == pytest.approx(0.05, rel=0.5)
    assert found.assumptions.spread.lineage == assumed("h100").spread.lineage
    was, modelled = work_seconds(played.replay, uneven)
    assert modelled == pytest.approx(was, rel=0.01), "their own rates are those that were drawn"


def test_a_run_tells_the_law_of_its_own_task() -> None:
    h100 = assumed("h100")
    found = calibrate(read_journal(RECORDED), h100)
    assert found.assumptions.errors.images == h100.errors.images
    assert found.assumptions.errors.language != h100.errors.language
    assert "errors.language" in {each.names for each in found.found if each.known}


def test_a_fabric_that_was_measured_is_taken_over() -> None:
    """It has eight hosts, whose pairs at half of the width have a quarter of what neighbours have."""
    lines = list(read_journal(RECORDED))
    begin = next(place for place, line in enumerate(lines) if isinstance(line.event, Released))
    nodes = tuple(
        FabricNode(f"node{n}", (TimedAllReduce(64, 2e-5), TimedAllReduce(1 << 20, 1e-4))) for n in range(8)
    )
    over_all = (TimedAllReduce(64, 8e-5), TimedAllReduce(1 << 20, 1e-3))
    measured = Fabric(16, "nccl", nodes, over_all, ((1e10,) * 4, (4e10,) * 4, (4e10,) * 4), {}, 1.0)
    assert is_known(measured)
    lines.insert(begin, lines[begin]._replace(event=FabricMeasured(measured)))
    h100 = assumed("h100")
    found = calibrate(lines, h100)
    few = calibrate(lines, replace(h100, fabric=replace(h100.fabric, nodes_a_switch=4))).assumptions.fabric
    assert found.assumptions.fabric == replace(h100.fabric, node_bytes_per_second=4e10, hop_seconds=5e-6)
    assert few == replace(found.assumptions.fabric, nodes_a_switch=4, oversubscription=4.0)
    group = found.assumptions.group
    assert (group.all_reduce_seconds, group.overlap) == (2e-5, h100.group.overlap)
    assert group.all_reduce_bytes_per_second == pytest.approx((1 << 20) / 1e-4)
    assert {each.names for each in found.found if each.known} >= {"fabric", "group"}


def test_a_run_that_validated_nothing_teaches_nothing(tmp_path: Path) -> None:
    slow = replace(TRUE, speed=Speed(1e9))
    played = Played(tmp_path / "run", SimulatedMachine(1, 1), slow, config(0.1))
    with pytest.raises(JournalError, match="nothing can be calibrated"):
        calibrate(read_journal(played.files.journal), TRUE)


def test_times_are_not_negative_and_their_sum_stays() -> None:
    rows = np.array([[1.0, 10.0, 100.0], [1.0, 20.0, 400.0], [1.0, 40.0, 300.0], [1.0, 70.0, 900.0]])
    true = np.array([0.5, 0.02, 0.001])
    assert not_negative(rows, rows @ true, needed=2) == pytest.approx(tuple(true))
    values = np.array([1.0, 4.0, 3.0, 9.1])  # of the last column alone; the others would be below 0
    found = np.array(not_negative(rows, values, needed=2))
    assert (found >= 0).all()
    assert (rows @ found).sum() == pytest.approx(values.sum())


def test_the_law_of_errors_is_found_again() -> None:
    points = []
    for trial, relative in enumerate((0.5, 1.0, 2.0, 4.0)):
        for examples in (100, 1000, 5000, 20000, 80000):
            left = (1 + examples / 4000.0) ** -0.8
            points.append((examples, relative, 0.1 * relative**-0.2 * (1 - left) + 0.9 * left, trial))
    found = fitted_errors(points, 0.9)
    for examples, relative, error, _ in points:
        left = (1 + examples / found.examples) ** -found.power
        assert found.floor * relative**-found.size_power * (1 - left) + 0.9 * left == pytest.approx(
            error, abs=0.01
        )
    assert found.spread < 0.02


def test_groups_of_ranks_that_were_dealt_to_the_nodes_in_turn_reduce_within_nodes(tmp_path: Path) -> None:
    machine, slow = SimulatedMachine(2, 2), steady(fabric=NodeNetwork(1e6))
    played = Played(tmp_path / "run", machine, slow, SHORT)
    turns = {1: 1, 2: 3, 3: 2, 4: 4}
    lines = list[Line]()
    for line in read_journal(played.files.journal):
        event = line.event
        if isinstance(event, LegBegan):
            event = replace(event, groups=((1, 3), (2, 4)))
        elif isinstance(event, RankReady):
            event = replace(event, ready=replace(event.ready, rank=turns[event.ready.rank]))
        elif isinstance(event, RankAlike):
            differs = {**event.differs, "rank": turns[event.differs["rank"]]}
            event = replace(event, like=turns[event.like], differs=differs)
        lines.append(line._replace(event=event))
    assert work_seconds(replay(lines), slow) == work_seconds(played.replay, slow)
