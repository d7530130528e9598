"""`accept` answers by its exit code, and in files for other programs."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from tests.aiperf.commands.typed import Typed
from tests.analysis.comparing.test_acceptance import GOOD, forged, study


def test_the_answer_is_written_for_other_programs(typed: Typed, tmp_path: Path) -> None:
    runs = study(tmp_path / "runs", GOOD)
    criteria, junit, answer = (tmp_path / name for name in ("site.toml", "accept.xml", "accept.json"))
    criteria.write_text("max_error = 1.0\nmin_mfu = 0.99\n")
    words = ("--criteria", criteria, "--junit", junit, "--json", answer)
    assert typed("accept", *(run.files.directory for run in runs), *words) == 1
    assert typed.out.endswith("NOT ACCEPTED: 3 of 7 criteria, 3 runs\n")
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("7", "3")
    assert [case.get("name") for case in suite if case.find("failure") is not None] == ["min_mfu"] * 3
    content = json.loads(answer.read_text())
    assert (content["form"], content["accepted"]) == ("aiperf-hpc/acceptance/1", False)
    assert content["runs"] == [run.replay.opened.run_id for run in runs]
    criteria.write_text("max_error = 1.0\n")
    assert typed("accept", runs[0].files.directory, "--criteria", criteria) == 0
    assert typed.out.endswith("ACCEPTED, 1 run\n")


def test_what_cannot_be_judged_is_refused(typed: Typed, tmp_path: Path) -> None:
    criteria = tmp_path / "site.toml"
    criteria.write_text("max_error = 1.0\n")
    assert typed("accept", forged(tmp_path / "forged").directory, "--criteria", criteria) == 2
    assert "forged is INVALID" in typed.err


def test_a_run_is_held_against_the_earlier_ones(typed: Typed, tmp_path: Path) -> None:
    runs = study(tmp_path / "runs", GOOD)
    criteria = tmp_path / "site.toml"
    criteria.write_text("max_drop = 0.5\nsame_environment = true\n")
    words = ("accept", runs[2].files.directory, "--criteria", criteria)
    assert typed(*words, "--history", tmp_path / "runs") == 1  # all began at one time: none is earlier
    assert typed.out.count("unknown  max_drop") == 2
    torn = tmp_path / "runs" / "torn"
    torn.mkdir()
    (torn / "journal.jsonl").write_text("no JSON\n")
    assert typed(*words, "--history", tmp_path / "runs") == 1
    assert "left out of the history: " in typed.err
    assert typed(*words, "--history", tmp_path / "absent") == 2
    assert typed.err.endswith(
        "absent: No such file or directory; give a directory that holds runs, or start one: aiperf-hpc run\n"
    )
    criteria.write_text("max_error = 1.0\n")
    assert typed(*words, "--history", tmp_path / "runs") == 2
    assert "the criteria ask for neither max_drop nor same_environment" in typed.err
