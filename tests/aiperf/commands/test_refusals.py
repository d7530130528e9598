"""Wrong input is one line with the remedy, at once; it changes nothing."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from aiperf.errors import installation
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
