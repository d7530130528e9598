"""Weak scaling: the arithmetic by hand, the refusal of mixed runs, the files."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import AiperfError
from aiperf.files import RunFiles
from aiperf.journal.events import Origin
from aiperf.rules.rule import Outcome
from aiperf.rules.verdict import Verdict
from aiperf.wording import percent
from analysis.comparing import scaling as module
from analysis.comparing.published import published
from analysis.comparing.scaling import csv_text, markdown_text, scaling
from analysis.pages.figures.scaling import weak_scaling
from analysis.pages.figures.svg import inline
from analysis.pages.study import write_scaling
from analysis.readings.judged import Judged, examine
from tests.journals import CIFAR, Machine, resized, write_run

SIZES = (1, 2, 4)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Judged]:
    """Of one, two and four groups of two devices."""
    folder = tmp_path_factory.mktemp("study")
    return [
        examine(write_run(folder / f"run-{size}", resized(CIFAR, 1.0), Machine(groups=size, failing=0.0)))
        for size in SIZES
    ]


def test_efficiency_is_against_the_smallest(runs: list[Judged]) -> None:
    found = scaling(runs[::-1])
    rates = [run.score.ops_per_second for run in runs]
    assert [point.devices for point in found.points] == [2, 4, 8]
    assert [point.nodes for point in found.points] == [1, 2, 4]
    assert found.base_devices == 2
    for point, ops, size in zip(found.points, rates, SIZES):
        assert point.efficiency == pytest.approx((ops / (2 * size)) / (rates[0] / 2))
    assert found.points[0].efficiency == 1.0


def test_repeated_runs_of_the_smallest_size_are_averaged(runs: list[Judged], tmp_path: Path) -> None:
    again = examine(
        write_run(tmp_path / "run-1-again", resized(CIFAR, 1.0), Machine(groups=1, random_seed=2))
    )
    faster = replace(again, score=replace(again.score, ops_per_second=3 * runs[0].score.ops_per_second))
    found = scaling([runs[0], faster, runs[1]])
    assert [point.efficiency for point in found.points[:2]] == pytest.approx([0.5, 1.5])


def edited(run: Judged, change: Callable[[Judged], None]) -> Judged:
    change(run)
    return run


@pytest.mark.parametrize(
    ("machine", "config", "name"),
    [
        (Machine(groups=2), {"limits": replace(CIFAR.limits, minutes=1.5)}, "limits.minutes"),
        (Machine(groups=2, device="Tesla T4"), {}, "the devices"),
    ],
)
def test_a_run_of_another_kind_is_refused_by_name(
    machine: Machine, config: dict[str, object], name: str, runs: list[Judged], tmp_path: Path
) -> None:
    other = examine(write_run(tmp_path / "other", replace(resized(CIFAR, 1.0), **config), machine))  # type: ignore[arg-type]
    with pytest.raises(AiperfError) as raised:
        scaling([runs[0], other])
    assert f" {name} is " in str(raised.value) or "more differ" in str(raised.value)
    assert str(runs[0].files.directory) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_other_code_is_refused_and_another_seed_is_not(runs: list[Judged], tmp_path: Path) -> None:
    config = replace(resized(CIFAR, 1.0), random_seed=7)
    other = write_run(tmp_path / "other", config, Machine(groups=2))
    assert len(scaling([runs[0], examine(other)]).points) == 2
    text = other.journal.read_text()
    code = runs[0].replay.opened.code_hash
    other.journal.write_text(text.replace(code, "f" * 64))
    with pytest.raises(AiperfError, match="the code is 'ffff"):
        scaling([runs[0], examine(other)])


def test_a_run_that_is_given_twice_is_no_second_run(runs: list[Judged]) -> None:
    with pytest.raises(AiperfError, match=r"run-1 is the same run as .*run-1; give each run once"):
        scaling([runs[0], runs[1], runs[0]])


def test_a_run_that_was_cut_off_is_the_same_run(runs: list[Judged], tmp_path: Path) -> None:
    lines = runs[1].files.journal.read_bytes().splitlines(keepends=True)
    cut = RunFiles(tmp_path / "cut")
    cut.directory.mkdir()
    cut.journal.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(AiperfError, match=r"cut is the same run as .*run-2; give each run once"):
        scaling([runs[0], runs[1], examine(cut)])


def test_a_run_may_be_called_anything(runs: list[Judged], tmp_path: Path) -> None:
    name = "=cmd()|<b>[x](y)"
    run = write_run(tmp_path / "run", resized(CIFAR, 1.0), Machine(groups=2))
    run.journal.write_text(run.journal.read_text().replace('"run_id":"run"', f'"run_id":"{name}"'))
    found = scaling([runs[0], examine(run)])
    assert [row["run"] for row in csv.DictReader(io.StringIO(csv_text(found)))] == ["run-1", f"'{name}"]
    assert "| =cmd()\\|\\<b>\\[x](y) |" in markdown_text(found)


def test_nodes_are_those_of_one_leg(runs: list[Judged]) -> None:
    """A run that was resumed on other hosts did not have more of them."""
    leg = runs[1].replay.leg
    ranks = [replace(one, ready=replace(one.ready, host=f"other-{one.ready.host}")) for one in leg.ranks]
    again = copy(runs[1].replay)
    again.legs = [leg, replace(leg, index=1, ranks=ranks)]
    assert scaling([runs[0], replace(runs[1], replay=again)]).points[1].nodes == 2


def test_what_is_invalid_is_said_beside_the_figure(runs: list[Judged]) -> None:
    (rule, *others) = runs[1].verdict.findings
    broken = replace(runs[1], verdict=Verdict((replace(rule, outcome=Outcome.FAILED), *others)))
    says = weak_scaling(scaling([runs[0], broken])).says
    assert says.endswith("Not to be believed, for INVALID: run-2.")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> list[Judged]:
    folder = tmp_path_factory.mktemp("simulated")
    machines = [Machine(groups=size, origin=Origin.SIMULATED) for size in SIZES]
    return [examine(write_run(folder / f"run-{one.groups}", resized(CIFAR, 1.0), one)) for one in machines]


def test_a_simulated_run_is_no_point_beside_a_measured_one(
    runs: list[Judged], simulated: list[Judged]
) -> None:
    with pytest.raises(AiperfError) as raised:
        scaling([*runs[:2], simulated[2]])
    assert str(raised.value) == (
        f"{simulated[2].files.directory} is simulated and {runs[0].files.directory} is measured; "
        "`aiperf-hpc compare` sets two such runs side by side"
    )


def test_a_study_of_simulated_runs_is_marked_in_every_form(simulated: list[Judged], tmp_path: Path) -> None:
    found = scaling(simulated)
    marked = [name for name in module.table(found).columns if name.endswith(", simulated")]
    assert marked == ["sustained OPS, simulated", "efficiency, N0 = 2, simulated"]
    assert [row[0] for row in module.table(found).rows] == [f"run-{size}, simulated" for size in SIZES]
    assert {row[-2] for row in module.table(found).rows} == {"SIMULATED"}
    picture = weak_scaling(found, published(simulated[0]))
    assert picture.legend[0].text == "simulated, with the 95 % interval"
    assert picture.title == "Weak scaling, simulated"
    html, table, text, svg, _ = write_scaling(found, simulated, [], tmp_path / "study")
    assert html.read_text().count('<p class="mark" role="note">SIMULATED: ') == 1
    assert {row["origin"] for row in csv.DictReader(io.StringIO(table.read_text()))} == {"simulated"}
    assert text.read_text().startswith("SIMULATED: no network was trained")
    assert svg.read_text().count(">SIMULATED</text>") > 10


def test_a_run_without_credit_is_refused(runs: list[Judged]) -> None:
    empty = replace(runs[1], score=replace(runs[1].score, ops_per_second=0.0))
    with pytest.raises(AiperfError, match="no credited work"):
        scaling([runs[0], empty])


def test_csv_holds_every_figure_in_full(runs: list[Judged]) -> None:
    found = scaling(runs)
    read = list(csv.DictReader(io.StringIO(csv_text(found))))
    for row, point in zip(read, found.points, strict=True):
        assert float(row["ops_per_second"]) == point.ops_per_second
        assert float(row["efficiency"]) == point.efficiency
        assert float(row["training_share"]) == point.training_share
        assert float(row["busy_share"]) == point.busy_share
        assert int(row["base_devices"]) == 2
        assert point.interval is None or float(row["interval_low"]) == point.interval[0]


def test_the_utilisation_is_what_the_groups_were_not_idle(runs: list[Judged]) -> None:
    found = scaling(runs)
    for run, point in zip(runs, found.points, strict=True):
        shares = run.score.shares
        busy = [share.train + share.validate for share in shares]
        assert point.busy_share == pytest.approx(sum(busy) / len(busy))
        assert point.training_share < point.busy_share <= 1.0
    last = found.points[-1]
    told = f"trained {percent(last.training_share, 1)} of their time, with validations "
    assert f"{told}{percent(last.busy_share, 1)}." in weak_scaling(found).says


def test_published_points_carry_their_source(runs: list[Judged]) -> None:
    others = published(runs[0])
    assert [(one.nodes, one.devices, one.ops_per_second) for one in others] == [
        (4, 32, 56.1e12),
        (512, 4096, 194.53e15),
    ]
    assert all("2021" in one.source for one in others)
    picture = weak_scaling(scaling(runs), others)
    assert any("published by others under AIPerf 1.0 rules" in key.text for key in picture.legend)
    marks = inline(picture).wide_marks
    assert marks is not None
    assert len(marks.names) == len(runs) + len(others)


def test_all_forms_are_written(runs: list[Judged], tmp_path: Path) -> None:
    written = write_scaling(scaling(runs), runs, published(runs[0]), tmp_path / "study")
    assert [path.name for path in written] == [
        f"scaling.{ending}" for ending in ("html", "csv", "md", "svg", "png")
    ]
    html = written[0].read_text()
    assert "AIPerf 1.0" in html
    assert module.markdown_text(scaling(runs)) == written[2].read_text()
