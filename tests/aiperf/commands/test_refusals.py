"""Wrong input is one line with the remedy, at once; it changes nothing."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aiperf.errors import installation
from aiperf.journal.run_files import RunFiles
from aiperf.rules.rule import Outcome
from analysis.readings.judgement import examine
from analysis.readings.telemetry import records
from nas.layers import Concat, Conv2d, GlobalPool
from nas.record import graph_to_json
from tests.aiperf.commands.typed import Typed
from tests.house.tree import ROOT
from tests.journals import Scene, told, write_run
from tests.nas.graphs import wired
from tests.tables import ComesTo

RUNNING = (
    *("run --directory never", "run --dry-run", "resume never", "doctor", "peak", "infer never", "profile"),
    *("count --roofline", "validate . --reevaluate", "nni master --directory never", "nni trial"),
    *("data verify never", "data pack never packed", "data bench"),
)
"""Commands that need the extra `run`."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("refusals")
    for run in ("R", "runs/Q"):
        write_run(found / run, told(Scene(groups=1))).lock.touch()
    (found / "wrong.toml").write_text("speed = 1")
    (found / "part.toml").write_text("seed_architecture = 'resnet18'\n[training]\nbatch_size = 8")
    (found / "meter.csv").write_text("time,watts\n2020-01-01T00:00:00Z,100\n2020-01-01T01:00:00Z,100\n")
    for name, first in {"weightless": [Concat(), *["input"] * 10], "padded": [Conv2d(10, 69)]}.items():
        graph = wired({"first": first, "pool": [GlobalPool()]}, 1, 32, 32)
        (found / f"{name}.json").write_text(json.dumps(graph_to_json(graph)))
    (found / "images" / "cats").mkdir(parents=True)
    (found / "images" / "cats" / "1.JPG").touch()
    return found


def test_wrong_input_is_one_line_with_the_remedy(
    typed: Typed, folder: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """Behind its exit code; of the names that would do only the first is compared."""
    monkeypatch.chdir(folder)
    before = sorted((path, path.stat().st_size) for path in folder.rglob("*"))

    def refused(words: str) -> tuple[int, str]:
        code = typed(*shlex.split(words))
        assert (typed.out, typed.err.count("\n")) == ("", 1)
        assert typed.err.startswith("aiperf-hpc: ")
        text = (
            typed.err.strip().removeprefix("aiperf-hpc: ").replace(f"{folder}/", "").replace(f"{ROOT}/", "")
        )
        return code, re.sub("(Options|Commands|keys|presets|known): ([^,]+),.*", r"\1: \2, …", text)

    def at_once(words: str) -> tuple[int, str]:
        """To describe a device takes seconds, because a process imports torch for it."""
        with monkeypatch.context() as patch:
            patch.setattr("aiperf.ranks.process.describe_device", pytest.fail)
            return refused(words)

    names = {"refused": refused, "at_once": at_once, "GROUPS": ROOT / "tests/recorded/groups"}
    comes_to_what_was_read("refused.txt", names)
    assert sorted((path, path.stat().st_size) for path in folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "library"),
    [
        *((words, "torch") for words in RUNNING),
        *((RUNNING[0], library) for library in ("safetensors", "sklearn", "PIL", "psutil")),
    ],
)
def test_without_a_library_what_trains_or_measures_says_which_extra_it_needs(
    words: str, library: str, typed: Typed, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # it cannot be found
    assert typed(*words.split()) == (2 if words.startswith("validate") else 1)  # 2: nothing was validated
    assert typed.err == f"aiperf-hpc: {library} is not installed; remedy: {installation('run')}\n"
    assert list(here.iterdir()) == []


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
