"""`list` and `accept`: the runs of a directory, and the answer to whoever has to accept a machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from aiperf.journal.events import Origin
from aiperf.journal.run_files import RunFiles
from analysis.readings.judgement import examine
from tests.aiperf.commands.typed import Typed
from tests.analysis.comparing.test_acceptance import GOOD, forged, study
from tests.journals import CIFAR, Machine, resized, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three that began at one time, a simulated one, a later one, one that cannot be read, and no run."""
    folder = tmp_path_factory.mktemp("runs")
    study(folder, GOOD)
    write_run(folder / "played", resized(CIFAR, 2.0), Machine(origin=Origin.SIMULATED))
    write_run(folder / "later", resized(CIFAR, 2.0), Machine(days=1))
    (folder / "no-run").mkdir()
    (folder / "torn").mkdir()
    (folder / "torn" / "journal.jsonl").write_text("no JSON\n")
    return folder


def test_runs_are_listed_in_the_order_of_their_starts(
    typed: Typed, runs: Path, tmp_path: Path, as_it_was_read: Callable[[str, str], None]
) -> None:
    """All with one that cannot be read, for other programs too; one alone; and where there is none."""
    words = (runs,), (runs, "--json"), (runs / "later",), (tmp_path,)
    said = [f"{typed('list', *each)}\n{typed.out}{typed.err}" for each in words]
    as_it_was_read("\n".join(said).replace(f"{runs}/", "").replace(str(tmp_path), "…"), "listed.txt")


def test_an_acceptance_is_written_for_other_programs(typed: Typed, runs: Path, tmp_path: Path) -> None:
    names = ("site.toml", "accept.xml", "accept.json", "accept.html")
    criteria, junit, answer, sheet = (tmp_path / name for name in names)
    directories = sorted(runs.glob("seed-*"))
    criteria.write_text("max_error = 1.0\nmin_mfu = 0.99\n")
    written = ("--junit", junit, "--json", answer, "--sheet", sheet)
    assert typed("accept", *directories, "--criteria", criteria, *written) == 1
    assert typed.out.endswith("NOT ACCEPTED: 1 of 5 checks did not pass, 3 runs\n")
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("5", "1")
    assert [case.get("name") for case in suite if case.find("failure") is not None] == ["min_mfu"]
    content = json.loads(answer.read_text())
    assert (content["form"], content["accepted"]) == ("aiperf-hpc/acceptance/1", False)
    assert content["runs"] == [examine(RunFiles(each)).replay.opened.run_id for each in directories]
    assert "<h2>Signatures</h2>" in sheet.read_text()
    assert [each["node"] for each in content["nodes"]] == ["node0001", "node0002", "node0003", "node0004"]
    criteria.write_text("max_error = 1.0\n")
    assert typed("accept", directories[0], "--criteria", criteria) == 0
    assert typed.out.endswith("ACCEPTED, 1 run\n")
    assert typed("accept", forged(tmp_path / "forged").directory, "--criteria", criteria) == 2
    assert "forged is INVALID" in typed.err


def test_a_run_is_held_against_the_earlier_ones(typed: Typed, runs: Path, tmp_path: Path) -> None:
    criteria = tmp_path / "site.toml"
    criteria.write_text("max_drop = 0.5\nsame_environment = true\n")
    words = ("accept", next(runs.glob("seed-*")), "--criteria", criteria, "--history")
    assert typed(*words, runs) == 1  # none is earlier
    assert typed.out.count("unknown  max_drop") == 2
    assert "left out of the history: " in typed.err
    assert typed(*words, runs / "absent") == 2
    assert "absent: No such file or directory; give a directory that holds runs, or start one" in typed.err
    criteria.write_text("max_error = 1.0\n")
    assert typed(*words, runs) == 2
    assert "the criteria ask for neither max_drop nor same_environment" in typed.err
