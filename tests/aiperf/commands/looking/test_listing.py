"""The runs of a directory, a line each."""

from __future__ import annotations

import json
from pathlib import Path

from aiperf.files import RunFiles
from aiperf.journal.events import Origin
from analysis.readings.judged import examine
from analysis.readings.key import figures
from tests.aiperf.commands.typed import Typed
from tests.journals import CIFAR, Machine, resized, write_run


def test_runs_are_listed_in_the_order_of_their_starts(typed: Typed, tmp_path: Path) -> None:
    later = write_run(tmp_path / "a", resized(CIFAR, 2.0), Machine(days=1))
    write_run(tmp_path / "b", resized(CIFAR, 2.0), Machine(origin=Origin.SIMULATED))
    (tmp_path / "no-run").mkdir()
    assert typed("list", tmp_path) == 0
    head, first, second = (line.split() for line in typed.out.splitlines())
    assert head[:4] == ["run", "started", "preset", "devices"]
    assert (first[0], first[1], first[-1]) == ("b", "2026-05-04", "SIMULATED")
    assert (second[0], second[1], second[-2:]) == ("a", "2026-05-05", ["VALID,", "smoke"])
    judged = examine(RunFiles(later.directory))
    known = figures(judged.replay, judged.score)
    assert known["ops_per_second"].text in typed.out
    assert known["error"].text in typed.out
    assert typed("list", tmp_path, "--json") == 0
    assert json.loads(typed.out)[1] == {
        "run": "a",
        "verdict": "VALID",
        "run_class": "smoke",
        "started": "2026-05-05T08:00:00+00:00",
        "preset": judged.replay.opened.config.preset,
        "problem": "",
        "devices": 8,
        "span_seconds": known["span_seconds"].value,
        "ops_per_second": known["ops_per_second"].value,
        "error": known["error"].value,
    }


def test_what_cannot_be_read_is_listed_and_reported(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "journal.jsonl").write_text("no JSON\n")
    write_run(tmp_path / "whole", resized(CIFAR, 2.0))
    assert typed("list", tmp_path) == 1
    assert [line.split()[0] for line in typed.out.splitlines()] == ["run", "whole", "torn"]
    assert typed.out.splitlines()[-1].endswith("unreadable")
    assert "torn/journal.jsonl" in typed.err


def test_an_empty_directory_and_none(typed: Typed, tmp_path: Path) -> None:
    assert typed("list", tmp_path) == 0
    assert typed.out == f"no run in {tmp_path}; `aiperf-hpc run` makes one\n"
    assert typed("list", tmp_path / "absent") == 1
    assert "absent: No such file or directory; give a directory that holds runs, or start one: " in typed.err
