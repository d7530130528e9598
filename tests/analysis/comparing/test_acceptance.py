"""A good study passes, a slow node is named, and what is not VALID is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import ConfigError
from aiperf.files import RunFiles
from analysis.comparing.acceptance import (
    Acceptance,
    Criteria,
    Judgement,
    Unacceptable,
    accept,
    read_criteria,
)
from analysis.comparing.acceptance_text import acceptance_text
from analysis.readings.judged import Judged, examine
from tests.journals import CIFAR, Machine, resized, write_run

GOOD = Machine(groups=4, failing=0.0)


def study(folder: Path, machine: Machine, minutes: float = 2.0) -> list[Judged]:
    """Three runs of one configuration, each with a random seed of its own."""
    return [
        examine(
            write_run(
                folder / f"run-{seed}",
                replace(resized(CIFAR, minutes), random_seed=seed),
                replace(machine, random_seed=seed),
            )
        )
        for seed in (1, 2, 3)
    ]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> list[Judged]:
    return study(tmp_path_factory.mktemp("good"), replace(GOOD, watts=300.0))


def by_criterion(found: Acceptance) -> dict[str, list[Judgement]]:
    answers: dict[str, list[Judgement]] = {}
    for each in found.judgements:
        answers.setdefault(each.criterion, []).append(each)
    return answers


def test_each_criterion_is_held_against_what_was_measured(good: list[Judged]) -> None:
    rates = sorted(run.score.ops_per_second for run in good)
    spread = (rates[2] - rates[0]) / rates[1]
    asked = Criteria(
        runs=3,
        min_ops_per_second=rates[0],
        max_spread=1.01 * spread,
        max_error=0.99,
        min_mfu=1e-9,
        min_control_examples_per_second=1.0,
        min_ops_per_joule=1.0,
        min_node_control=0.5,
        no_slow_ranks=True,
    )
    found = accept(asked, good)
    assert found.passed, acceptance_text(found)
    assert {criterion: len(each) for criterion, each in by_criterion(found).items()} == {
        "runs": 1,
        "max_spread": 1,
        "min_ops_per_second": 3,
        "min_mfu": 3,
        "min_control_examples_per_second": 3,
        "min_ops_per_joule": 3,
        "max_error": 3,
        "min_node_control": 12,
        "no_slow_ranks": 3,
    }
    stricter = replace(asked, min_ops_per_second=rates[1], max_spread=0.99 * spread, ranked=True, runs=4)
    wrong = [each.criterion for each in accept(stricter, good).judgements if not each.passed]
    assert sorted(wrong) == ["max_spread", "min_ops_per_second", *["ranked"] * 3, "runs"]


def test_ranks_too_few_to_be_compared_are_unknown_which_does_not_pass(tmp_path: Path) -> None:
    found = accept(Criteria(no_slow_ranks=True), study(tmp_path, replace(GOOD, groups=1)))
    assert not found.passed
    assert [each.passed for each in by_criterion(found)["no_slow_ranks"]] == [None] * 3
    assert "unknown: fewer than four ranks cannot be compared" in acceptance_text(found)


def test_a_slow_node_is_named(tmp_path: Path) -> None:
    runs = study(tmp_path, replace(GOOD, slow={2: 0.5}))
    found = accept(Criteria(no_slow_ranks=True), runs)
    assert not found.passed
    slow = {
        event.ready.host
        for event in runs[0].replay.leg.ranks
        if event.ready.rank in runs[0].replay.leg.began.groups[2]
    }
    (node,) = slow
    named = {each.where for each in found.judgements if not each.passed}
    assert named == {f"{run.replay.opened.run_id}, node {node}" for run in runs}
    text = acceptance_text(found)
    assert text.splitlines()[1].startswith("FAILED")
    assert "\nNOT ACCEPTED: " in text


def test_the_same_seed_twice_is_no_repetition(good: list[Judged], tmp_path: Path) -> None:
    twin = examine(write_run(tmp_path / "twin", resized(CIFAR, 2.0), replace(GOOD, random_seed=9)))
    (runs,) = by_criterion(accept(Criteria(runs=2, max_error=1.0), [good[0], twin]))["runs"]
    assert (runs.measured, runs.passed) == ("2 runs, 1 random seed", False)


def test_what_is_not_known_does_not_pass(tmp_path: Path) -> None:
    (run, *_) = study(tmp_path, GOOD)
    found = accept(Criteria(min_ops_per_joule=1.0, max_spread=0.1), [run])
    assert [(each.criterion, each.measured, each.passed) for each in found.judgements[1:]] == [
        ("max_spread", "unknown", None),
        ("min_ops_per_joule", "unknown", None),
    ]
    assert not found.passed


def forged(directory: Path) -> RunFiles:
    """A line was changed afterwards."""
    files = write_run(directory, replace(resized(CIFAR, 2.0), random_seed=7), GOOD)
    text = files.journal.read_text(encoding="utf-8")
    files.journal.write_text(text.replace('"steps":', '"steps": ', 1), encoding="utf-8")
    return files


def test_a_run_that_is_not_valid_is_refused(good: list[Judged], tmp_path: Path) -> None:
    with pytest.raises(Unacceptable, match=r"forged is INVALID: .*; omit it"):
        accept(Criteria(max_error=1.0), [*good, examine(forged(tmp_path / "forged"))])


def test_runs_of_two_sizes_are_refused(good: list[Judged], tmp_path: Path) -> None:
    other = examine(write_run(tmp_path / "small", resized(CIFAR, 2.0), replace(GOOD, groups=2)))
    with pytest.raises(Unacceptable, match="the runs have 4 and 8 devices"):
        accept(Criteria(max_error=1.0), [good[0], other])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it has no criterion; add one, such as min_ops_per_second = 1e15"),
        ("min_mfu = -1.0", "min_mfu is -1.0; it must be at least 0"),
        ("min_mfu = 'high'", "min_mfu is 'high'; it must be"),
        ("min_mfuu = 0.3", "unknown key min_mfuu; known: "),
        ("min_mfu = ", "site.toml: "),
        ("earlier_runs = 3", "it has no criterion"),
        ("max_drop = 0.1\nearlier_runs = 0", "earlier_runs is 0; it must be at least 1"),
    ],
)
def test_wrong_criteria_are_one_line(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_criteria(text, "site.toml")
    assert told in str(error.value)
    assert "\n" not in str(error.value)
