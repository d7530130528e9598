"""A good study passes, a slow node is named, what is not VALID is refused; a run beside earlier ones.

It is one file, because all of it judges runs that are made once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from aiperf.errors import ConfigError
from aiperf.journal.events import ControlMeasured, Event
from aiperf.journal.run_files import RunFiles
from aiperf.wire.messages import Coupled, Fabric, FabricNode, Rung, TimedAllReduce
from aiperf.wording import rate
from analysis.comparing.acceptance import (
    Acceptance,
    Criteria,
    Judgement,
    Unacceptable,
    accept,
    changes,
    drops,
    earlier,
    node_controls,
    read_criteria,
)
from analysis.comparing.acceptance_text import acceptance_sheet, acceptance_text
from analysis.comparing.comparison import compare
from analysis.pages.acceptance_page import MEANINGS, acceptance_html
from analysis.readings.judgement import Judged, examine
from tests.aiperf.rules.forged import one, with_leg_for_the_test
from tests.journals import CIFAR, Machine, Scene, resized, told, within, write_run

CONTROL = Criteria(min_control_examples_per_second=1.0)
GOOD = Machine(groups=4, failing=0.0)
MINUTES = 0.5
"""Length of a run in which each group trains several networks."""


def seeded(folder: Path, machine: Machine, seed: int, minutes: float = MINUTES) -> Judged:
    config = replace(resized(CIFAR, minutes), random_seed=seed)
    return examine(write_run(folder / f"seed-{seed}", config, replace(machine, random_seed=seed)))


def study(folder: Path, machine: Machine, minutes: float = MINUTES) -> list[Judged]:
    """Three runs of one configuration, each with a random seed of its own."""
    return [seeded(folder, machine, seed, minutes) for seed in (1, 2, 3)]


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
        min_ops_per_second=rates[1],
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
        "min_ops_per_second": 1,
        "min_mfu": 1,
        "min_control_examples_per_second": 1,
        "min_ops_per_joule": 1,
        "max_error": 3,
        "min_node_control": 12,
        "no_slow_ranks": 3,
    }
    (middle,) = by_criterion(found)["min_ops_per_second"]
    assert (middle.run, middle.measured) == ("median of 3 runs", rate(rates[1]))
    stricter = replace(
        asked, min_ops_per_second=1.001 * rates[1], max_spread=0.99 * spread, ranked=True, runs=4
    )
    wrong = [each.criterion for each in accept(stricter, good).judgements if not each.passed]
    assert sorted(wrong) == ["max_spread", "min_ops_per_second", *["ranked"] * 3, "runs"]


def test_the_fabric_and_the_coupled_control_are_held_against_what_was_measured(
    good: list[Judged], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Criteria(min_coupled_share=0.8, min_bus_bytes_per_second=1e10, no_slow_pairs=True)
    outcomes = {key: each.text for key, (each, *_) in by_criterion(accept(asked, good)).items()}
    few = "unknown: the fabric is not known, required none"
    assert outcomes["no_slow_pairs"] == few
    assert outcomes["min_coupled_share"] == "unknown, required at least 0.80 of uncoupled"
    assert outcomes["min_bus_bytes_per_second"] == "unknown, required at least 10.0 GB/s"
    nodes = tuple(FabricNode(f"node{number}") for number in range(8))
    pairs, once = ((4e10,) * 4,) * 3, (TimedAllReduce(256 << 20, 0.05),)
    coupled = Coupled("", 224, 256, 20, 8.0, 49_350.0)
    fabric = Fabric(64, "nccl", nodes, once, pairs, {"NET/IB": 64}, 30.0, coupled=coupled)

    def measured(fabric: Fabric) -> dict[str, Judgement]:
        for run in good:
            monkeypatch.setattr(run.replay.leg, "fabric", fabric)
        return {key: each for key, (each, *_) in by_criterion(accept(asked, good)).items()}

    found = measured(fabric)
    assert all(each.passed for each in found.values()), found
    assert found["min_coupled_share"].measured == "0.83 of uncoupled"
    assert found["min_bus_bytes_per_second"].measured == "10.6 GB/s"
    slow = (4e10, 1e10, 4e10, 4e10)
    found = measured(replace(fabric, rounds=(slow, *pairs[1:]), coupled=replace(coupled, seconds=9.0)))
    assert (found["no_slow_pairs"].passed, found["no_slow_pairs"].node) == (False, "node1, node5")
    assert found["no_slow_pairs"].measured == "10.0 GB/s, where the median was 40.0 GB/s"
    assert not found["min_coupled_share"].passed
    two = replace(fabric, nodes=nodes[:2], rounds=((4e10,),))
    assert measured(two)["no_slow_pairs"].measured == "unknown: fewer than 8 hosts cannot be compared"


def test_ranks_too_few_to_be_compared_are_unknown_which_does_not_pass(tmp_path: Path) -> None:
    asked = Criteria(no_slow_ranks=True, min_node_control=0.5)
    found = accept(asked, study(tmp_path, replace(GOOD, groups=1, devices_per_group=1), 0.2))
    assert not found.passed
    for criterion in ("no_slow_ranks", "min_node_control"):
        assert [each.passed for each in by_criterion(found)[criterion]] == [None] * 3
    text = acceptance_text(found)
    assert "unknown: fewer than four ranks cannot be compared" in text
    assert "unknown: one rank has no other to compare it with" in text


def test_a_slow_node_does_not_hide_behind_a_leg_without_a_span(tmp_path: Path) -> None:
    """The test is made in another leg, in which all nodes are equally fast, or none is measured."""

    def slowed(event: Event) -> Event:
        if not isinstance(event, ControlMeasured) or event.control.rank != 2:
            return event
        return within(event, examples_per_second=33.0, seconds=5120 / 33.0)

    lines = [(t, slowed(event)) for t, event in told(Scene(minutes=0.1, epochs=10))]
    for name, more in {"measured": (one(ControlMeasured),), "not measured": ()}.items():
        run = examine(write_run(tmp_path / name, with_leg_for_the_test(*more)(lines)))
        named = by_criterion(accept(Criteria(min_node_control=0.9), [run]))["min_node_control"]
        assert [(each.node, each.passed) for each in named] == [("node1", True), ("node2", False)]


def test_the_control_is_of_examples_and_of_one_size(tmp_path: Path) -> None:
    """A text's figure elsewhere is of bytes."""
    language = examine(RunFiles(Path(__file__).parents[2] / "recorded/language"))
    (control,) = by_criterion(accept(CONTROL, [language]))["min_control_examples_per_second"]
    assert (control.measured, control.passed) == ("194/s", True)

    def run(seed: int, size: int) -> Judged:
        scene = Scene(groups=1, minutes=0.1, epochs=10, changes=(("random_seed", seed),))
        lines = [(t, within(e, size=size) if isinstance(e, ControlMeasured) else e) for t, e in told(scene)]
        return examine(write_run(tmp_path / f"{seed}", lines))

    runs = [run(1, 224), run(2, 224), run(3, 112)]
    for some, answer in ((runs[:2], ("101/s", True)), (runs[1:], ("unknown", None))):
        (control,) = by_criterion(accept(CONTROL, some))["min_control_examples_per_second"]
        assert (control.run, control.measured, control.passed) == ("median of 2 runs", *answer)


def forged(directory: Path) -> RunFiles:
    """A line was changed afterwards."""
    files = write_run(directory, replace(resized(CIFAR, MINUTES), random_seed=7), GOOD)
    text = files.journal.read_text(encoding="utf-8")
    files.journal.write_text(text.replace('"steps":', '"steps": ', 1), encoding="utf-8")
    return files


def test_what_is_not_known_does_not_pass(good: list[Judged], tmp_path: Path) -> None:
    unmeasured = seeded(tmp_path, GOOD, 1)
    found = accept(Criteria(min_ops_per_joule=1.0, max_spread=0.1), [unmeasured])
    assert [(each.criterion, each.measured, each.passed) for each in found.judgements[1:]] == [
        ("max_spread", "unknown: one run has no other to compare it with", None),
        ("min_ops_per_joule", "unknown: no supported energy sensor (L0, devices only)", None),
    ]
    assert not found.passed
    # Where it is unknown of one run, that of the median is.
    (joules,) = by_criterion(accept(Criteria(min_ops_per_joule=1.0), [unmeasured, good[1]]))[
        "min_ops_per_joule"
    ]
    assert (joules.run, joules.passed) == ("median of 2 runs", None)
    # The same seed twice is no repetition.
    twin = examine(write_run(tmp_path / "twin", resized(CIFAR, MINUTES), replace(GOOD, random_seed=9)))
    (runs,) = by_criterion(accept(Criteria(runs=2, max_error=1.0), [good[0], twin]))["runs"]
    assert (runs.measured, runs.passed) == ("2 runs, 1 random seed", False)
    # Ranked runs have no other.
    ranked = replace(resized(CIFAR, 0.2), ranked=True)
    pair = [examine(write_run(tmp_path / f"{n}", ranked, replace(GOOD, random_seed=n))) for n in (1, 2)]
    (runs,) = by_criterion(accept(Criteria(runs=2, max_error=1.0), pair))["runs"]
    assert (runs.text, runs.passed) == ("2 runs, 1 random seed, required at least 2", True)


def test_runs_that_are_not_valid_or_of_two_sizes_are_refused(good: list[Judged], tmp_path: Path) -> None:
    with pytest.raises(Unacceptable, match=r"forged is INVALID: .*; omit it"):
        accept(Criteria(max_error=1.0), [*good, examine(forged(tmp_path / "forged"))])
    other = examine(write_run(tmp_path / "small", resized(CIFAR, MINUTES), replace(GOOD, groups=2)))
    with pytest.raises(Unacceptable, match="the runs have 4 and 8 devices"):
        accept(Criteria(max_error=1.0), [good[0], other])


def test_wrong_criteria_are_one_line(
    comes_to_what_was_read: Callable[[str, Mapping[str, object]], None],
) -> None:
    comes_to_what_was_read("refused_criteria.txt", {"read_criteria": read_criteria})
    with pytest.raises(ConfigError, match=r"^site\.toml: "):
        read_criteria("min_mfu = ", "site.toml")


QUICK = {rank: {"governor": "performance"} for rank in range(1, 9)}
SAVING = {rank: {"governor": "powersave", "NCCL_ALGO": "Ring"} for rank in range(1, 9)}
MACHINE = replace(GOOD, settings=QUICK)


def run_of(folder: Path, name: str, machine: Machine, minutes: float = MINUTES) -> Judged:
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
        run_of(tmp_path, "longer", MACHINE, minutes=2 * MINUTES),
        run_of(tmp_path, "smaller", replace(MACHINE, groups=2)),
        run_of(tmp_path, "other-device", replace(MACHINE, device="NVIDIA H100 80GB HBM3")),
        examine(forged(tmp_path / "forged")),
    ]
    assert earlier(days[3], others, 5) == []


def test_a_slower_machine_is_found_and_by_how_much(days: list[Judged]) -> None:
    ops, control = drops([days[3]], days[:3])
    middle = sorted(run.score.ops_per_second for run in days[:3])[1]
    assert ops.share == pytest.approx(1 - days[3].score.ops_per_second / middle)
    assert ops.text.startswith("sustained OPS ")
    assert ops.text.endswith(" % below the median of 3 earlier runs")
    assert ops.share is not None
    assert 0.1 < ops.share < 0.3
    assert control.share is not None
    assert abs(control.share) < 0.05  # the control of these journals does not follow the device's speed
    faster, _ = drops([days[0]], days[3:])
    assert faster.text.endswith(" % above the earlier run")


def test_a_control_is_compared_at_a_size_that_both_have(
    days: list[Judged], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A processor that came to 64² once and to 112² at other times, and is a tenth slower today."""

    def timed(run: Judged, factor: float, *sizes: int, batch_size: int = 8) -> None:
        rungs = [Rung(size, batch_size, 4, 32 * size / factor) for size in sizes]
        rate = rungs[-1].examples_per_second
        controls = {
            rank: replace(one, **vars(rungs[-1]), examples_per_second=rate, others=tuple(rungs[:-1]))
            for rank, one in run.replay.leg.controls.items()
        }
        monkeypatch.setattr(run.replay.leg, "controls", controls)

    def compared(first: Judged, second: Judged) -> list[str]:
        return next(row[1:] for row in compare(first, second).score.rows if row[0] == "control")

    timed(days[3], 0.9, 32, 64)
    for run in days[:3]:
        timed(run, 1.0, 32, 64, 112)
    (_, control) = drops([days[3]], days[:3])
    assert (control.share, control.earlier) == (pytest.approx(0.1), 3)
    assert compared(days[0], days[1]) == [*["0.07143 images/s at 112²"] * 2, "0.00 %"]
    assert compared(days[1], days[3]) == ["0.125 images/s at 64²", "0.1125 images/s at 64²", "−10.00 %"]
    timed(days[0], 1.0, 112)  # as an older journal, which has the last size alone
    (_, control) = drops([days[3]], days[:3])
    assert (control.share, control.earlier) == (pytest.approx(0.1), 2)
    assert compared(days[0], days[3]) == ["0.07143 images/s at 112²", "0.1125 images/s at 64²", ""]
    timed(days[0], 1.0, 64, batch_size=2)
    assert compared(days[0], days[3]) == [
        "0.03125 images/s at 64² in batches of 2",
        "0.1125 images/s at 64² in batches of 8",
        "",
    ]
    for run in (days[0], days[1]):
        monkeypatch.setattr(run.replay.leg, "controls", {})
    assert compared(days[0], days[3]) == ["not measured", "0.1125 images/s at 64²", ""]
    assert compared(days[0], days[1]) == ["not measured", "not measured", ""]


def test_the_change_of_the_environment_is_named(days: list[Judged]) -> None:
    assert changes(days[0], days[2]) == []
    assert changes(days[2], days[3]) == [
        "governor: powersave, was performance",
        "NCCL_ALGO: Ring, was absent",
    ]


def test_each_criterion_has_its_meaning_on_the_sheet() -> None:
    assert set(MEANINGS) == {each.name for each in fields(Criteria)} - {"earlier_runs"}


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
    alone = judged(days[0])
    assert [each.passed for each in alone] == [None, None, None]
    assert alone[2].text == (
        "unknown: there is no earlier run and no other to compare it with, required that of an earlier run"
    )
    several = by_criterion(accept(replace(asked, max_drop=0.0), days[:2]))["same_environment"]
    assert [(each.run, each.required, each.passed) for each in several] == [("day-1", "that of day-0", True)]


def test_a_sheet_has_a_row_per_criterion_and_names_the_nodes_that_did_not_pass(tmp_path: Path) -> None:
    """Three runs on 24 nodes, of which one is slow: one page, with the slow node first and lines to sign."""
    runs = study(tmp_path, replace(GOOD, groups=24, devices_per_group=1, slow={5: 0.5}), 0.6)
    (slow_host,) = {e.ready.host for e in runs[0].replay.leg.ranks if e.group == 5}
    asked = Criteria(max_error=0.99, min_node_control=0.5, no_slow_ranks=True, max_disturbance=0.05)
    found = accept(asked, runs)
    assert {each.node for each in by_criterion(found)["no_slow_ranks"]} == {slow_host}
    lines = acceptance_text(found).splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("FAILED")] == [
        ["FAILED", "no_slow_ranks"]
    ] * 3
    assert not any(line.startswith("passed") for line in lines[:75])  # what did not pass comes first
    assert lines[-1].startswith("NOT ACCEPTED: 75 of ")
    made = datetime(2026, 5, 6, 9, 30, tzinfo=timezone.utc)
    sheet = acceptance_sheet(found, runs, made, ("Abacus", "Example Centre"), "site.toml")
    assert len(sheet.nodes) == 24
    slow = next(each for each in sheet.nodes if each.slow)
    assert (slow.node, slow.slow, slow.not_passed) == ("node0006", 3, ("max_disturbance", "no_slow_ranks"))
    assert all(each.others is None for each in sheet.nodes)  # these journals do not have it
    control = node_controls(runs[0].replay)["node0006"]
    assert slow.control is not None
    assert control is not None
    assert slow.control <= control
    text = acceptance_html(sheet)
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in re.findall(r"<tr>.*?</tr>", text)]
    by_name = {row[0].rpartition("(")[2].rstrip(")"): row[1:] for row in rows if row}
    assert by_name["owner"] == ["Example Centre"]
    assert by_name["judged"] == ["6 May 2026, 09:30 UTC, by the criteria in site.toml"]
    names = [run.replay.opened.run_id for run in runs]
    outcome, measured, required = by_name["no_slow_ranks"]
    assert (outcome, required) == ("failed", "none")
    assert measured.startswith(
        "group 5 on node0006 (NVIDIA A100-SXM4-80GB): 50\xa0% below the median of the "
    )
    assert [measured.count(f"run {name}, node node0006") for name in names] == [1, 1, 1]
    assert by_name["max_disturbance"][1].endswith("; and 69 more")
    assert by_name["max_disturbance"][0] == "unknown"
    shown = [row[0] for row in rows if row and row[0].startswith("node0")]
    assert (shown[0], len(shown)) == ("node0006", 12)
    assert "12 nodes of 24 shown; 12 more, of which 12 did not pass." in text
    assert [text.count(f"<dt>{party}</dt>") for party in ("For the site", "For the supplier")] == [1, 1]
