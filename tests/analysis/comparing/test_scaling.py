"""Weak scaling: the arithmetic by hand, the refusal of mixed runs, the files."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from aiperf.errors import AiperfError
from aiperf.journal.events import Origin
from aiperf.journal.run_files import RunFiles
from aiperf.rules.rule import Outcome
from aiperf.rules.verdict import Verdict
from aiperf.wire.reports import Coupled, Fabric
from analysis.comparing import scaling as module
from analysis.comparing.published import published
from analysis.comparing.scaling import csv_text, markdown_text, scaling
from analysis.pages.comparisons import write_scaling
from analysis.pages.figures.picture import WIDE
from analysis.pages.figures.scaling import _ticks, weak_scaling
from analysis.readings.judgement import Judged, examine
from tests.journals import CIFAR, Machine, resized, write_run
from tests.tables import ComesTo

SIZES = (1, 2, 4)
TWO = Machine(groups=2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Judged]:
    """Runs of one, two and four groups of two devices."""
    folder = tmp_path_factory.mktemp("study")
    return [made(folder / f"run-{size}", Machine(groups=size, failing=0.0)) for size in SIZES]


def made(directory: Path, machine: Machine = TWO, **changes: Any) -> Judged:
    return examine(write_run(directory, replace(resized(CIFAR, 1.0), **changes), machine))


def test_repeated_runs_of_the_smallest_size_are_averaged(runs: list[Judged], tmp_path: Path) -> None:
    again = made(tmp_path / "run-1-again", Machine(groups=1, random_seed=2), random_seed=7)
    faster = replace(again, score=replace(again.score, ops_per_second=3 * runs[0].score.ops_per_second))
    found = scaling([runs[0], faster, runs[1]])
    assert [point.efficiency for point in found.points[:2]] == pytest.approx([0.5, 1.5])
    assert "above 100 %" not in weak_scaling(found).says  # of the smallest size it is their spread
    slow = replace(runs[0], score=replace(runs[0].score, ops_per_second=runs[0].score.ops_per_second / 2))
    note = "An efficiency above 100 % (run-2) means that the smallest run had less per device"
    assert note in weak_scaling(scaling([slow, runs[1]])).says


def test_the_coupled_share_is_in_the_table_and_the_figure_if_a_run_knows_it(
    runs: list[Judged], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = scaling(runs)
    assert "coupled" not in module.table(found).columns
    assert "coupled" not in "".join(key.text for key in weak_scaling(found).legend)
    coupled = Coupled("", 224, 256, 20, 8.0, 49_350.0)
    monkeypatch.setattr(
        runs[2].replay.leg, "fabric", Fabric(64, "nccl", (), (), (), {}, 9.0, coupled=coupled)
    )
    found = scaling(runs)
    place = module.table(found).columns.index("coupled")
    shown = ["not measured", "not measured", "0.83 of uncoupled"]
    assert [row[place] for row in module.table(found).rows] == shown
    assert [row["coupled_share"][:4] for row in csv.DictReader(io.StringIO(csv_text(found)))] == [
        "",
        "",
        "0.82",
    ]
    picture = weak_scaling(found)
    assert "had 0.83 of uncoupled" in picture.says
    assert [label.splitlines()[3:] for label in picture.labels] == [[], [], ["coupled 0.83 of uncoupled"]]
    assert picture.legend[-1].text.startswith("coupled")
    picture.draw(WIDE)


@pytest.mark.parametrize(
    ("sizes", "ticks"),
    [([8], [8, 16, 32]), ([1, 2], [1, 2, 4]), ([8, 64], [8, 32, 64]), ([1, 2, 4, 8, 16, 32], [1, 4, 16, 32])],
)
def test_there_are_at_least_three_ticks_of_devices(sizes: list[float], ticks: list[float]) -> None:
    assert _ticks(sizes, 5) == ticks


def cut(run: Judged, directory: Path) -> Judged:
    """The same run without its last line."""
    files = RunFiles(directory)
    files.directory.mkdir()
    files.journal.write_bytes(b"".join(run.files.journal.read_bytes().splitlines(keepends=True)[:-1]))
    return examine(files)


def recoded(run: Judged, directory: Path) -> Judged:
    other = write_run(directory, resized(CIFAR, 1.0), TWO)
    other.journal.write_text(other.journal.read_text().replace(run.replay.opened.code_hash, "f" * 64))
    return examine(other)


def test_a_run_that_makes_no_point_is_refused(
    runs: list[Judged], tmp_path: Path, comes_to_what_was_read: ComesTo
) -> None:
    folders = (tmp_path / f"{number}" / "other" for number in count())

    def beside(other: Callable[[Judged, Path], Judged]) -> object:
        """What is said of another run beside the first."""
        (folder := next(folders)).parent.mkdir()
        try:
            return scaling([runs[0], other(runs[0], folder)])
        except AiperfError as error:
            text = re.sub(r"[0-9a-f]{64}", "a hash", str(error))
            raise AiperfError(re.sub(r"\S+/(?=run-1|other)", "", text)) from None

    comes_to_what_was_read(
        "refused_points.txt", {**globals(), "beside": beside, "Origin": Origin, "CIFAR": CIFAR}
    )


def test_a_run_may_be_called_anything(runs: list[Judged], tmp_path: Path) -> None:
    name = "=cmd()|<b>[x](y)"
    run = write_run(tmp_path / "run", resized(CIFAR, 1.0), Machine(groups=2))
    run.journal.write_text(run.journal.read_text().replace('"run_id":"run"', f'"run_id":"{name}"'))
    found = scaling([runs[0], examine(run)])
    assert [row["run"] for row in csv.DictReader(io.StringIO(csv_text(found)))] == ["run-1", f"'{name}"]
    assert "| =cmd()\\|\\<b>\\[x](y) |" in markdown_text(found)


def test_what_is_invalid_is_said_beside_the_figure(runs: list[Judged]) -> None:
    (rule, *others) = runs[1].verdict.findings
    broken = replace(runs[1], verdict=Verdict((replace(rule, outcome=Outcome.FAILED), *others)))
    says = weak_scaling(scaling([runs[0], broken])).says
    assert says.endswith("Not to be believed, for INVALID: run-2.")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> list[Judged]:
    folder = tmp_path_factory.mktemp("simulated")
    return [made(folder / f"run-{size}", Machine(groups=size, origin=Origin.SIMULATED)) for size in SIZES]


def test_a_study_of_simulated_runs_is_written_and_marked_in_every_form(
    simulated: list[Judged], tmp_path: Path, as_it_was_read: Callable[[str, str], None]
) -> None:
    """The smallest is first, and the efficiencies are relative to it."""
    found = scaling(simulated[::-1])
    others = published(simulated[0])
    picture = weak_scaling(found, others)
    assert any("published by others under AIPerf 1.0 rules" in key.text for key in picture.legend)
    assert picture.legend[0].text == "simulated, with the 95 % interval"
    assert picture.title == "Overhead of search, dispatch and storage, simulated"
    html, table, text, svg, png = write_scaling(found, simulated, others, tmp_path / "study")
    assert [each.suffix for each in (html, table, text, svg, png)] == [".html", ".csv", ".md", ".svg", ".png"]
    assert "AIPerf 1.0" in html.read_text()
    assert "weak scaling" not in (html.read_text() + svg.read_text()).lower(), "a word for measured runs"
    as_it_was_read(text.read_text(), "simulated.txt")
    assert html.read_text().count('<p class="mark" role="note">SIMULATED: ') == 1
    assert {row["origin"] for row in csv.DictReader(io.StringIO(table.read_text()))} == {"simulated"}
    assert svg.read_text().count(">SIMULATED</text>") > 10


def test_csv_holds_every_figure_in_full(runs: list[Judged]) -> None:
    found = scaling(runs)
    read = list(csv.DictReader(io.StringIO(csv_text(found))))
    columns = ("ops_per_second", "efficiency", "training_share", "busy_share")
    for row, point in zip(read, found.points, strict=True):
        assert [float(row[name]) for name in columns] == [getattr(point, name) for name in columns]
        assert int(row["base_devices"]) == 2
        assert point.interval is None or float(row["interval_low"]) == point.interval[0]
