"""The real master, search and journal on a simulated machine, and the figures that are shown of it."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.journal.events import Origin, Released
from aiperf.journal.replay import Replay
from aiperf.pretending.assumptions import Heat, Messages, Spread
from aiperf.score.credit import credit, work
from aiperf.score.lineage import recount
from aiperf.score.score import score
from aiperf.simulation.load_figures import columns, shares_of_time, size_figures
from aiperf.simulation.prediction import machine_of
from aiperf.simulation.simulated_machine import SimulatedMachine
from aiperf.simulation.simulated_world import MasterTime
from aiperf.wire.trial import State
from nas.ops import OPS
from tests.aiperf.simulation.simulated import NEVER, Played, config, steady

OF_TRIALS = {"Dispatched", "Began", "Closed", "Ended"}


@pytest.mark.contract
def test_the_same_seed_writes_the_same_journal(tmp_path: Path) -> None:
    first, second, other = (
        Played(tmp_path / name / "run", SimulatedMachine(2, 8), steady(), config(5.0, random_seed=seed))
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
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
    by_hand = sum(
        counts[attempt.trial.number].train.price(OPS) * examples
        + sum(counts[attempt.trial.number].evaluate.price(OPS) * v.segment.of for v in attempt.validations)
        for attempt, examples in zip(told.attempts, told.worked().examples.tolist())
    )
    assert work(told, counts, credit(told)).operations == by_hand > 0
    assert score(told, counts) == score(played.live, counts)
    assert told.tested is not None
    busy, useful = shares_of_time(told)
    assert busy == useful > 0.99
    figures = size_figures(told, played.world, played.files.journal, 3, 1.0)
    assert (figures.groups, figures.devices, figures.groups_lost, figures.lost_work) == (3, 24, 0, 0.0)


def test_a_lost_node_is_named_and_what_was_completed_stays(tmp_path: Path) -> None:
    fails = replace(NEVER, node_hours=1.0)
    told = Played(tmp_path / "run", SimulatedMachine(4, 8), steady(failures=fails), config(60.0)).replay
    assert told.leg.ended.reason == "deadline"
    assert 0 < len(told.leg.losses) < 4
    lost, credited = {each.group: each.reason for each in told.leg.losses}, credit(told)
    assert lost == {group: f"node{group + 1:04} failed" for group in lost}
    before = [each for each in told.attempts if each.group in lost and each.state is State.COMPLETE]
    assert before
    assert all(credited.has(attempt, v) for attempt in before for v in attempt.validations)
    busy, useful = shares_of_time(told)
    assert useful < busy < 1 - len(lost) / 4 / 60
    again = {attempt.trial.number for attempt in told.attempts if attempt.number > 1}
    assert again <= {attempt.trial.number for attempt in told.attempts if attempt.state is State.LOST}


@pytest.mark.parametrize(
    ("devices", "spread", "groups", "nodes"), [(4, False, 4, 1), (16, False, 1, 2), (2, True, 8, 2)]
)
def test_groups_may_be_parts_of_a_node_and_several_nodes(
    devices: int, spread: bool, groups: int, nodes: int, tmp_path: Path
) -> None:
    told = Played(tmp_path / "run", SimulatedMachine(2, 8, devices, spread), steady(), config(10.0)).replay
    assert len(told.leg.began.groups) == groups
    assert {len(told.leg.hosts_of(group)) for group in range(groups)} == {nodes}
    assert machine_of(told) == SimulatedMachine(2, 8, devices, spread)
    assert shares_of_time(told)[0] == pytest.approx(1.0, abs=0.02)


def test_steps_wait_for_images_that_are_not_in_memory_yet(tmp_path: Path) -> None:
    """Three nodes share a file system that is far slower than they are: in the first epoch."""
    short = {"data.training_examples": 100_000, "training.validate_every_examples": 20_000}
    free = steady(spread=Spread(0.0, 0.0), data=replace(steady().data, image_bytes=0.0))
    plain = Played(tmp_path / "plain", SimulatedMachine(3, 8), free, config(1.0, **short)).replay
    fast, _ = epochs_seconds(plain)
    content = steady().data.image_bytes * 100_000
    storage = replace(free.storage, bytes_per_second=3 * content / 600.0)
    slow = replace(free, data=steady().data, storage=storage)
    played = Played(tmp_path / "slow", SimulatedMachine(3, 8), slow, config(30.0, **short))
    first, second = epochs_seconds(played.replay)
    assert fast < 6.0
    assert first == pytest.approx(600.0, rel=0.01)
    assert second == pytest.approx(fast, rel=0.01)
    assert not played.replay.leg.losses, "no block is so long that its group seems dead"
    figures = size_figures(played.replay, played.world, played.files.journal, 3, 1.0)
    assert figures.data_bytes == pytest.approx(3 * content)
    assert figures.data_wait == pytest.approx((600.0 - fast) / 1800.0, rel=0.02)
    rest = columns(replace(figures, data_wait=-1e-7), slow.messages)
    assert rest["time that steps waited for them"] == "0.00 %"


def test_a_group_gets_slower_as_its_devices_get_hot(tmp_path: Path) -> None:
    few = config(10.0, **{"data.training_examples": 100_000, "training.validate_every_examples": 20_000})
    hot = steady(spread=Spread(0.0, 0.0), heat=Heat(0.5, 60.0))
    free = replace(hot, data=replace(hot.data, image_bytes=0.0))
    told = Played(tmp_path / "run", SimulatedMachine(1, 8), free, few).replay
    segments = [validation.segment for validation in told.attempts[0].validations]
    seconds = [segment.train_seconds / segment.steps for segment in segments]
    assert seconds == sorted(seconds)
    # It begins after some 40 s of measurements, at 0.76 of the cold rate, and ends at half of it.
    assert seconds[-1] / seconds[0] == pytest.approx(1.5, abs=0.1)


def epochs_seconds(told: Replay) -> tuple[float, float]:
    """Seconds of training of the first two epochs of the first trial, each of five segments."""
    each = [validation.segment.train_seconds for validation in told.attempts[0].validations]
    return sum(each[:5]), sum(each[5:10])


def test_what_passes_between_two_trials_is_no_work(tmp_path: Path) -> None:
    slow = steady(trials=replace(steady().trials, gap_seconds=100.0))
    told = Played(tmp_path / "run", SimulatedMachine(1, 8), slow, config(60.0)).replay
    began = sum(bool(attempt.validations) for attempt in told.attempts)
    assert began > 1
    assert 100.0 * began <= 3600.0 * (1 - shares_of_time(told)[0]) < 100.0 * (began + 1)


# Groups that crash, so that work is lost


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    crashing = steady(failures=replace(NEVER, process_hours=2.0))
    return Played(tmp_path_factory.mktemp("figures") / "run", SimulatedMachine(2, 8), crashing, config(60.0))


def test_no_group_waits_for_the_first_proposals_of_others(tmp_path: Path) -> None:
    """They are made before the clock starts, and each takes its time there."""
    released, last = [], []
    for seconds in (0.0, 2.0):
        assumptions = steady(messages=replace(steady().messages, proposal_seconds=seconds))
        told = Played(tmp_path / str(seconds), SimulatedMachine(4, 1), assumptions, config(1.0)).replay
        released.append(told.leg.released or 0.0)
        last.append(told.attempts[3].dispatch_time - released[-1])
    assert released[1] - released[0] == pytest.approx(4 * 2.0, abs=0.1)
    assert last == [pytest.approx(0.0, abs=0.01)] * 2


def test_processes_crash_and_their_groups_go_on(played: Played) -> None:
    told = played.replay
    first = told.leg.losses[0]
    assert "crashed" in first.reason
    started = told.leg.started[first.group]
    later = [each for each in told.attempts if each.group == first.group and each.dispatch_time > started]
    assert any(attempt.state is not State.LOST for attempt in later)


def test_shares_of_time_are_of_what_lies_in_the_span(played: Played) -> None:
    told = played.replay
    leg, credited = told.leg, credit(told)
    validations = [(attempt, v) for attempt in told.attempts for v in attempt.validations]
    work = [(v.end, v.segment.validate_seconds, credited.has(attempt, v)) for attempt, v in validations]
    work += zip(told.blocks.column("ends"), told.blocks.column("seconds"), credited.blocks, strict=True)
    inside = [(max(0.0, min(end, leg.end) - (end - took)), counts) for end, took, counts in work]
    busy, useful = (sum(took for took, counts in inside if counts or every) for every in (True, False))
    assert useful < busy < 7200.0
    assert shares_of_time(told) == (pytest.approx(busy / 7200.0), pytest.approx(useful / 7200.0))


def test_figures_are_those_of_the_journal_the_master_and_the_storage(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [(json.loads(line)["type"], len(line.encode()) + 1) for line in played.text.splitlines()]
    released = next(place for place, (kind, _) in enumerate(lines) if kind == Released.__name__)
    trials = sum(size for kind, size in lines if kind in OF_TRIALS)
    beside = sum(size for kind, size in lines[released + 1 :] if kind not in OF_TRIALS)
    figures = size_figures(played.replay, played.world, played.files.journal, 2, 1.5)
    assert figures.journal_bytes == sum(size for _, size in lines)
    assert figures.trial_bytes == pytest.approx(trials / len(played.replay.trials))
    assert figures.other_bytes_per_hour == pytest.approx(beside)  # in one hour
    total, storage = played.world.clock.total, played.world.storage
    assert figures.requests_per_second == pytest.approx(len(total.waited) / 3600)
    assert figures.master_busy == pytest.approx(total.busy_seconds / 3600)
    assert (figures.written_bytes, figures.read_bytes) == (storage.bytes_written, storage.bytes_read)
    assert 0 < figures.written_bytes != figures.read_bytes
    assert figures.lost_work == pytest.approx(1 - figures.useful / figures.utilisation)
    assert 0.0 < figures.lost_work < 0.5
    assert figures.groups_lost == len(played.replay.leg.losses) > 0
    waited = array("d", (each / 1000 for each in range(1001)))
    total = MasterTime(
        waited=waited, hearing_seconds=2.0, heard=1000, proposing_seconds=0.5, proposing_heard=50, proposed=20
    )
    monkeypatch.setattr(played.world.clock, "total", total)
    found = size_figures(played.replay, played.world, played.files.journal, 2, 1.5)
    assert (found.wait_seconds, found.wait_99_seconds) == (pytest.approx(0.5), pytest.approx(0.99))
    assert found.message_seconds == pytest.approx(2e-3)
    assert found.proposal_seconds == pytest.approx((0.5 - 50 * 2e-3) / 20)
    shown = columns(found, Messages(1.0, 5e-5, 1.5))
    assert shown["time per message (assumed)"] == "2 ms (50 µs)"
    assert shown["time per proposal (assumed)"] == "20 ms (1.5 s)"
