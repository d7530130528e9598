"""The figures of a simulated size, against the journal that they were taken from."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.journal.events import Released
from aiperf.pretending.assumptions import Messages
from aiperf.score.credit import credit
from aiperf.simulation.figures import SizeFigures, columns, shares_of_time, size_figures
from aiperf.simulation.machine import SimulatedMachine
from aiperf.simulation.master_clock import MasterTime
from tests.aiperf.simulation.simulated import NEVER, Played, config, steady

OF_TRIALS = {"Dispatched", "Began", "Closed", "Ended"}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Groups that crash, so that work is lost."""
    crashes = replace(NEVER, process_hours=2.0)
    machine = SimulatedMachine(2, 8)
    return Played(tmp_path_factory.mktemp("figures") / "run", machine, steady(failures=crashes), config(60.0))


@pytest.fixture(scope="module")
def figures(played: Played) -> SizeFigures:
    return size_figures(played.replay, played.world, played.files.journal, 2, 1.5)


def test_shares_of_time_are_of_what_lies_in_the_span(played: Played) -> None:
    told = played.replay
    leg, credited = told.leg, credit(told)
    assert leg.released is not None
    busy = useful = 0.0
    for attempt in told.attempts:
        for v in attempt.validations:
            seconds = min(v.end, leg.end) - (v.end - v.segment.validate_seconds)
            busy += max(0.0, seconds)
            useful += max(0.0, seconds) if credited.has(attempt, v) else 0.0
    blocks, ends = told.blocks.column("seconds"), told.blocks.column("ends")
    inside = [max(0.0, min(end, leg.end) - (end - took)) for end, took in zip(ends, blocks, strict=True)]
    busy += sum(inside)
    useful += sum(took for took, counts in zip(inside, credited.blocks, strict=True) if counts)
    available = 3600.0 * 2
    assert shares_of_time(told) == (pytest.approx(busy / available), pytest.approx(useful / available))
    assert useful < busy < available


def test_the_journal_is_counted_by_what_its_lines_are_of(played: Played, figures: SizeFigures) -> None:
    lines = [(json.loads(line)["type"], len(line.encode()) + 1) for line in played.text.splitlines()]
    released = next(place for place, (kind, _) in enumerate(lines) if kind == Released.__name__)
    trials = sum(size for kind, size in lines if kind in OF_TRIALS)
    beside = sum(size for kind, size in lines[released + 1 :] if kind not in OF_TRIALS)
    assert figures.journal_bytes == sum(size for _, size in lines)
    assert figures.trial_bytes == pytest.approx(trials / len(played.replay.trials))
    assert figures.other_bytes_per_hour == pytest.approx(beside)  # in one hour


def test_load_and_losses_are_those_of_the_master_and_the_storage(
    played: Played, figures: SizeFigures
) -> None:
    total, storage = played.world.clock.total, played.world.storage
    assert figures.requests_per_second == pytest.approx(len(total.waited) / 3600)
    assert figures.master_busy == pytest.approx(total.busy_seconds / 3600)
    assert figures.wait_seconds == pytest.approx(sum(total.waited) / len(total.waited))
    assert (figures.written_bytes, figures.read_bytes) == (storage.bytes_written, storage.bytes_read)
    assert figures.written_bytes != figures.read_bytes
    assert figures.lost_work == pytest.approx(1 - figures.useful / figures.utilisation)
    assert 0.0 < figures.lost_work < 0.5
    assert figures.groups_lost == len(played.replay.leg.losses) > 0


def test_the_load_of_the_master_is_told_by_message_and_by_candidate(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = MasterTime(
        waited=array("d", (each / 1000 for each in range(1001))),
        hearing_seconds=2.0,
        heard=1000,
        proposing_seconds=0.5,
        proposing_heard=50,
        proposed=20,
    )
    monkeypatch.setattr(played.world.clock, "total", total)
    found = size_figures(played.replay, played.world, played.files.journal, 2, 1.5)
    assert (found.wait_seconds, found.wait_99_seconds) == (pytest.approx(0.5), pytest.approx(0.99))
    assert found.message_seconds == pytest.approx(2e-3)
    assert found.proposal_seconds == pytest.approx((0.5 - 50 * 2e-3) / 20)
    shown = columns(found, Messages(1.0, 5e-5, 1.5))
    assert shown["a message, measured (assumed)"] == "2 ms (50 µs)"
    assert shown["a proposal"] == "20 ms (1.5 s)"


def test_what_passes_between_two_trials_is_no_work(tmp_path: Path) -> None:
    slow = steady(trials=replace(steady().trials, gap_seconds=100.0))
    told = Played(tmp_path / "run", SimulatedMachine(1, 8), slow, config(60.0)).replay
    began = sum(bool(attempt.validations) for attempt in told.attempts)
    assert began > 1
    idle = 3600.0 * (1 - shares_of_time(told)[0])
    assert 100.0 * began <= idle < 100.0 * (began + 1)
