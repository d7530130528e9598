"""A good study passes, a slow node is named, what is not VALID is refused; a run beside earlier ones.

It is one file, because all of it judges runs that are made once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from aiperf.errors import ConfigError
from aiperf.journal.events import ControlMeasured
from aiperf.journal.run_files import RunFiles
from aiperf.wire.reports import Coupled, Fabric, FabricNode, Rung, TimedAllReduce
from analysis.comparing.acceptance import (
    Criteria,
    Unacceptable,
    accept,
    changes,
    drops,
    earlier,
    read_criteria,
)
from analysis.comparing.acceptance_text import acceptance_sheet, acceptance_text
from analysis.comparing.comparison import compare
from analysis.pages.acceptance_page import MEANINGS, acceptance_html
from analysis.readings.judgement import Judged, examine
from tests.aiperf.rules.forged import each as each_line
from tests.aiperf.rules.forged import one, with_leg_for_the_test
from tests.analysis.pages.test_report import Elements
from tests.journals import CIFAR, Machine, Scene, resized, told, within, write_run
from tests.tables import ComesTo

GOOD = Machine(groups=4, failing=0.0)
MINUTES = 0.5
"""Length of a run in which each group trains several networks."""


def run_of(folder: Path, name: str, machine: Machine, seed: int = 1, minutes: float = MINUTES) -> Judged:
    config = replace(resized(CIFAR, minutes), random_seed=seed)
    return examine(write_run(folder / name, config, replace(machine, random_seed=seed)))


def seeded(folder: Path, machine: Machine, seed: int, minutes: float = MINUTES) -> Judged:
    return run_of(folder, f"seed-{seed}", machine, seed, minutes)


def study(folder: Path, machine: Machine, minutes: float = MINUTES) -> list[Judged]:
    """Three runs of one configuration, each with a random seed of its own."""
    return [seeded(folder, machine, seed, minutes) for seed in (1, 2, 3)]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> list[Judged]:
    return study(tmp_path_factory.mktemp("good"), replace(GOOD, watts=300.0))


def test_a_slow_node_does_not_hide_behind_a_leg_without_a_span(tmp_path: Path) -> None:
    """The test is made in another leg, in which all nodes are equally fast, or none is measured."""
    slow = {"examples_per_second": 33.0, "seconds": 5120 / 33.0}
    slowed = each_line(ControlMeasured, lambda e: within(e, **slow) if e.control.rank == 2 else e)
    lines = slowed(told(Scene(minutes=0.1, epochs=10)))
    for name, more in {"measured": (one(ControlMeasured),), "not measured": ()}.items():
        run = examine(write_run(tmp_path / name, with_leg_for_the_test(*more)(lines)))
        named = [each for each in accept(Criteria(min_node_control=0.9), [run]).judgements if each.node]
        assert [(each.node, each.passed) for each in named] == [("node1", True), ("node2", False)]


def forged(directory: Path) -> RunFiles:
    """A line was changed afterwards."""
    files = write_run(directory, replace(resized(CIFAR, MINUTES), random_seed=7), GOOD)
    text = files.journal.read_text(encoding="utf-8")
    files.journal.write_text(text.replace('"steps":', '"steps": ', 1), encoding="utf-8")
    return files


def test_wrong_criteria_are_one_line(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("refused_criteria.txt", {"read_criteria": read_criteria})
    with pytest.raises(ConfigError, match=r"^site\.toml: "):
        read_criteria("min_mfu = ", "site.toml")


QUICK = {rank: {"governor": "performance"} for rank in range(1, 9)}
SAVING = {rank: {"governor": "powersave", "NCCL_ALGO": "Ring"} for rank in range(1, 9)}
MACHINE = replace(GOOD, settings=QUICK)


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> list[Judged]:
    """Four days of one machine; on the last it is slower, and its governor is another."""
    folder = tmp_path_factory.mktemp("days")
    slower = replace(MACHINE, days=3, settings=SAVING, device_ops_per_second=0.8 * GOOD.device_ops_per_second)
    return [
        *(run_of(folder, f"day-{day}", replace(MACHINE, days=day), 1 + day) for day in range(3)),
        run_of(folder, "day-3", slower, 4),
    ]


NODES = tuple(FabricNode(f"node{number}") for number in range(8))
PAIRS, ONCE = ((4e10,) * 4,) * 3, (TimedAllReduce(256 << 20, 0.05),)
COUPLED = Coupled("", 224, 256, 20, 8.0, 49_350.0)
FABRIC = Fabric(64, "nccl", NODES, ONCE, PAIRS, {"NET/IB": 64}, 30.0, coupled=COUPLED)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Judged]]:
    """Runs that lack something, by name."""
    folder = tmp_path_factory.mktemp("others")

    def sized(seed: int, size: int) -> Judged:
        scene = Scene(groups=1, minutes=0.1, epochs=10, changes=(("random_seed", seed),))
        lines = each_line(ControlMeasured, lambda event: within(event, size=size))(told(scene))
        return examine(write_run(folder / f"sized-{seed}", lines))

    ranked = replace(resized(CIFAR, 0.2), ranked=True)
    twin = write_run(folder / "twin", resized(CIFAR, MINUTES), replace(GOOD, random_seed=9))
    return {
        "unmeasured": [seeded(folder, GOOD, 1)],
        "twin": [examine(twin)],
        "ranked": [
            examine(write_run(folder / f"ranked-{n}", ranked, replace(GOOD, random_seed=n))) for n in (1, 2)
        ],
        "lonely": study(folder / "lonely", replace(GOOD, groups=1, devices_per_group=1), 0.2),
        "sized": [sized(1, 224), sized(2, 224), sized(3, 112)],
        "language": [examine(RunFiles(Path(__file__).parents[2] / "recorded/language"))],
        "longer": [run_of(folder, "longer", MACHINE, minutes=2 * MINUTES)],
        "smaller": [run_of(folder, "smaller", replace(MACHINE, groups=2))],
        "foreign": [run_of(folder, "foreign", replace(MACHINE, device="NVIDIA H100 80GB HBM3"))],
        "forged": [examine(forged(folder / "forged"))],
    }


def test_what_is_not_known_does_not_pass_and_earlier_runs_are_those_of_the_same_kind(
    good: list[Judged],
    days: list[Judged],
    others: dict[str, list[Judged]],
    monkeypatch: pytest.MonkeyPatch,
    comes_to_what_was_read: ComesTo,
) -> None:
    """Each criterion is held against what was measured. The control is of examples and of one size; a text's
    figure elsewhere is of bytes. The same seed twice is no repetition, but ranked runs have no other. What is
    not VALID or of another size is refused, and is no history."""
    words = {True: "passed", False: "failed", None: "unknown"}

    def answers(runs: list[Judged], /, *history: Judged, **asked: Any) -> list[str] | str:
        try:
            found = accept(Criteria(**asked), runs, history).judgements
        except Unacceptable as error:
            return re.sub(r"/\S*/", "", str(error))
        return [f"{words[each.passed]} {each.criterion} of {each.where}: {each.text}" for each in found]

    def joined(fabric: Fabric | None) -> list[Judged]:
        for run in good:
            monkeypatch.setattr(run.replay.leg, "fabric", fabric)
        return good

    def before(run: Judged, runs: list[Judged], num: int) -> list[str]:
        return [each.replay.opened.run_id for each in earlier(run, runs, num)]

    rates = sorted(run.score.ops_per_second for run in good)
    names: dict[str, object] = {"answers": answers, "joined": joined, "before": before, "changes": changes}
    names |= {"good": good, "days": days, "rates": rates}
    comes_to_what_was_read("answers.txt", {**globals(), **others, **names})


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
    days: list[Judged], monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """A processor that came to 64² once and to 112² at other times, and is a tenth slower today. An older
    journal has the last size alone."""

    measured = [run.replay.leg.controls for run in days]

    def timed(day: int, factor: float, *sizes: int, batch_size: int = 8) -> Judged:
        rungs = [Rung(size, batch_size, 4, 32 * size / factor) for size in sizes]
        controls = {}
        for rank, control in measured[day].items() if rungs else ():
            last = replace(control, **vars(rungs[-1]), examples_per_second=rungs[-1].examples_per_second)
            controls[rank] = replace(last, others=tuple(rungs[:-1]))
        monkeypatch.setattr(days[day].replay.leg, "controls", controls)
        return days[day]

    def compared(first: Judged, second: Judged) -> list[str]:
        return next(row[1:] for row in compare(first, second).score.rows if row[0] == "control")

    def dropped(run: Judged, *others: Judged) -> tuple[float | None, int]:
        (_, control) = drops([run], others)
        return control.share and round(control.share, 6), control.earlier

    names = {"timed": timed, "compared": compared, "dropped": dropped}
    comes_to_what_was_read("controls.txt", names)


def test_each_criterion_has_its_meaning_on_the_sheet() -> None:
    assert set(MEANINGS) == {each.name for each in fields(Criteria)} - {"earlier_runs"}


def test_a_sheet_has_a_row_per_criterion_and_names_the_nodes_that_did_not_pass(
    tmp_path: Path, as_it_was_read: Callable[[str, str], None]
) -> None:
    """Three runs on 24 nodes, of which one is slow: one page, with the slow node first and lines to sign."""
    runs = study(tmp_path, replace(GOOD, groups=24, devices_per_group=1, slow={5: 0.5}), 0.6)
    asked = Criteria(max_error=0.99, min_node_control=0.5, no_slow_ranks=True, max_disturbance=0.05)
    found = accept(asked, runs)
    lines = acceptance_text(found).splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("FAILED")] == [
        ["FAILED", "no_slow_ranks"]
    ] * 3
    assert not any(line.startswith("passed") for line in lines[:75])  # what did not pass comes first
    assert lines[-1].startswith("NOT ACCEPTED: 75 of ")
    made = datetime(2026, 5, 6, 9, 30, tzinfo=timezone.utc)
    sheet = acceptance_sheet(found, runs, made, ("Abacus", "Example Centre"), "site.toml")
    words = Elements(acceptance_html(sheet), frozenset({"style", "script", "svg"})).words
    as_it_was_read("\n".join(words) + "\n", "sheet.txt")
