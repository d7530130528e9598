"""Files of a run or a person that are no files, or far too large: one line, at once, in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aiperf.journal.run_files import RunFiles
from aiperf.rules.rule import Outcome
from analysis.readings.judgement import examine
from analysis.readings.telemetry import records
from tests.aiperf.commands.typed import Typed
from tests.journals import Scene, told, write_run

GIB = 1 << 30
MOST_BYTES = 3 << 29  # of addresses, for Python, numpy and what they map; a third of what the worst took


@pytest.fixture
def run(tmp_path: Path) -> RunFiles:
    return write_run(tmp_path / "run", told(Scene(groups=1)))


def large(path: Path) -> None:
    """A file with a hole: it takes no room."""
    path.touch()
    os.truncate(path, GIB)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


BOUNDED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
from aiperf.start import main
for words in sys.argv[2:]:
    sys.argv[1:] = words.split()
    print(main())
"""
"""Commands in a process that gets no more memory."""


def test_a_journal_that_has_no_end_is_one_line(tmp_path: Path) -> None:
    said = {
        large: "line 1 is damaged: it has more than 4,194,304 bytes",
        a_device: "it is a device, not a file",
        os.mkfifo: "it is a pipe, not a file",
    }
    commands = []
    for index, make in enumerate(said):
        files = RunFiles(tmp_path / f"run{index}")
        files.directory.mkdir()
        make(files.journal)
        commands += [f"{command} {files.directory}" for command in ("status", "validate", "serve")]
    words = [sys.executable, "-c", BOUNDED, str(MOST_BYTES), *commands]
    own = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    answer = subprocess.run(words, capture_output=True, text=True, timeout=100, env=own)
    lines = answer.stderr.splitlines()
    assert answer.stdout.split() == ["1", "2", "1"] * 3
    assert len(lines) == 9
    assert [list(said.values())[index // 3] in line for index, line in enumerate(lines)] == [True] * 9


@pytest.mark.parametrize("grow", [lambda log: large(log), lambda log: log.write_bytes(b"x" * 5000)])
def test_a_log_that_no_rank_wrote_is_a_finding(grow: Callable[[Path], object], run: RunFiles) -> None:
    log = run.witnesses()[0]
    grow(log)
    judged = examine(run)
    (found,) = [each for each in judged.verdict.findings if log.name in each.text]
    assert found.outcome is Outcome.FAILED
    assert "with this journal it can have at most" in found.text or "more than 4,096 bytes" in found.text


def test_a_line_of_telemetry_without_end_is_passed_over(run: RunFiles) -> None:
    path = run.telemetry("node0")
    path.parent.mkdir()
    sample = json.dumps({"wall_seconds": 1.0})
    path.write_text(f"{sample}\n{'1' * (3 << 20)}\n{sample}\n")
    assert list(records(path)) == [{"wall_seconds": 1.0}, None, {"wall_seconds": 1.0}]
    path.unlink()
    os.mkfifo(path)
    assert list(records(path)) == [None]


def test_a_key_of_ten_thousand_parts_is_not_taken_apart(typed: Typed, tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("a." * 10_000 + "a = 1\n")
    assert typed("run", "--dry-run", "--preset", path) == 1
    assert typed.err == f"aiperf-hpc: {path}: line 1 has more than 1000 dots\n"
