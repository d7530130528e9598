"""A run beside the earlier ones of its machine, on synthetic journals whose machine changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.comparing.acceptance import Criteria, Judgement, accept
from analysis.comparing.history import changes, drops, earlier
from analysis.readings.judged import Judged, examine
from tests.analysis.comparing.test_acceptance import GOOD, forged
from tests.journals import CIFAR, Machine, resized, write_run

QUICK = {rank: {"governor": "performance"} for rank in range(1, 9)}
SAVING = {rank: {"governor": "powersave", "NCCL_ALGO": "Ring"} for rank in range(1, 9)}
MACHINE = replace(GOOD, settings=QUICK)


def run_of(folder: Path, name: str, machine: Machine, minutes: float = 2.0) -> Judged:
    """With the day as its random seed."""
    config = replace(resized(CIFAR, minutes), random_seed=1 + machine.days)
    return examine(write_run(folder / name, config, replace(machine, random_seed=1 + machine.days)))


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> list[Judged]:
    """Four days of one machine; on the last it is slower, and its governor is another."""
    folder = tmp_path_factory.mktemp("days")
    slower = replace(MACHINE, days=3, settings=SAVING, device_ops_per_second=0.8 * GOOD.device_ops_per_second)
    return [
        *(run_of(folder, f"day-{day}", replace(MACHINE, days=day)) for day in range(3)),
        run_of(folder, "day-3", slower),
    ]


def names(runs: list[Judged]) -> list[str]:
    return [run.replay.opened.run_id for run in runs]


def test_the_last_so_many_before_it_are_taken(days: list[Judged]) -> None:
    shuffled = [days[2], days[3], days[0], days[1]]
    assert names(earlier(days[3], shuffled, 5)) == ["day-0", "day-1", "day-2"]
    assert names(earlier(days[3], shuffled, 2)) == ["day-1", "day-2"]
    assert names(earlier(days[1], shuffled, 5)) == ["day-0"]
    assert earlier(days[0], shuffled, 5) == []


def test_what_is_of_another_kind_or_not_valid_is_no_history(days: list[Judged], tmp_path: Path) -> None:
    others = [
        run_of(tmp_path, "longer", MACHINE, minutes=3.0),
        run_of(tmp_path, "smaller", replace(MACHINE, groups=2)),
        run_of(tmp_path, "other-device", replace(MACHINE, device="NVIDIA H100 80GB HBM3")),
        examine(forged(tmp_path / "forged")),
    ]
    assert earlier(days[3], others, 5) == []


def test_a_slower_machine_is_found_and_by_how_much(days: list[Judged]) -> None:
    ops, control = drops(days[3], days[:3])
    middle = sorted(run.score.ops_per_second for run in days[:3])[1]
    assert ops.share == pytest.approx(1 - days[3].score.ops_per_second / middle)
    assert ops.text.startswith("sustained OPS ")
    assert ops.text.endswith(" % below the median of 3 earlier runs")
    assert 0.1 < ops.share < 0.3
    assert control.share is not None
    assert abs(control.share) < 0.05  # the control of these journals does not follow the device's speed
    faster, _ = drops(days[0], days[3:])
    assert faster.text.endswith(" % above the earlier run")


def test_the_change_of_the_environment_is_named(days: list[Judged]) -> None:
    assert changes(days[0], days[2]) == []
    assert changes(days[2], days[3]) == [
        "governor: powersave, was performance",
        "NCCL_ALGO: Ring, was absent",
    ]


def test_both_are_criteria(days: list[Judged]) -> None:
    asked = Criteria(max_drop=0.05, same_environment=True)

    def judged(run: Judged) -> list[Judgement]:
        return [each for each in accept(asked, [run], days).judgements if each.criterion != "runs"]

    assert [each.passed for each in judged(days[2])] == [True, True, True]
    ops, control, environment = judged(days[3])
    assert [ops.passed, control.passed, environment.passed] == [False, True, False]
    assert ops.required == "at most 5.00 % below"
    assert environment.required == "that of day-2"
    assert (
        environment.measured == "2 changes: governor: powersave, was performance; NCCL_ALGO: Ring, was absent"
    )
    assert [each.passed for each in judged(days[0])] == [None, None, True]
