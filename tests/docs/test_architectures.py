"""docs/architectures.md: its example is counted as it stands, and its table names every layer and field."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.journal.run_files import RunFiles
from aiperf.wire.trial import State
from nas.record import graph_from_json
from nas.seeds import resolve_seed
from tests.aiperf.commands.typed import Typed
from tests.house.tree import ROOT
from tests.mpi.jobs import environ
from tests.nas.graphs import LAYERS

PAGE = (ROOT / "docs/architectures.md").read_text(encoding="utf-8")
EXAMPLE, TEXT = re.findall(r"^```json\n(.*?)^```", PAGE, flags=re.M | re.S)
ROWS = dict(re.findall(r"^\| `([A-Z]\w+)` \| (.*?)\|", PAGE, flags=re.M))


def test_the_example_is_counted(typed: Typed, tmp_path: Path) -> None:
    path = tmp_path / "example.json"
    path.write_text(EXAMPLE, encoding="utf-8")
    assert typed("count", "--seed", path, "--json") == 0, typed.err
    graph = resolve_seed(str(path))
    # 5·5 taps of 1 channel and 7 taps of 8 for each of 8·28·28 elements; 128 features, 10 classes
    assert graph.cost.forward.mac == (25 + 56) * 8 * 28 * 28 + 1280
    assert f'"mac": {graph.cost.forward.mac}' in typed.out
    record = json.loads(EXAMPLE)
    record["nodes"][2]["layer"]["kernel"] = 4
    path.write_text(json.dumps(record), encoding="utf-8")
    assert typed("count", "--seed", path) != 0
    assert typed.err.count("\n") == 1
    assert "nodes[2].layer: Conv2d: kernel 4 is even; use an odd one, or state its padding" in typed.err


def test_the_text_is_counted_as_shown(typed: Typed, tmp_path: Path) -> None:
    path = tmp_path / "text.json"
    path.write_text(TEXT, encoding="utf-8")
    assert typed("count", "--seed", path) == 0, typed.err
    shown = re.findall(r"^```\n(tensor OPS.*?)^```", PAGE, flags=re.M | re.S)
    assert len(shown) == 1
    assert shown[0] in typed.out
    # 32 · (32 + 16 + 16) and 32 · 256 weights at 64 positions; 2 · 4 · 8 for each of 64 · 65 / 2 pairs
    assert resolve_seed(str(path)).cost.forward.mac == 64 * (2048 + 8192) + 64 * 2080
    assert typed("run", "--seed", path, "--directory", tmp_path / "run") == 1
    assert typed.err.endswith(" is for text of 64 positions, not for images of (1, 32, 32)\n")
    assert not (tmp_path / "run").exists()


def test_every_layer_and_field_is_named_with_its_default() -> None:
    assert ROWS.keys() == {kind.__name__ for kind in LAYERS}
    for kind in LAYERS:
        named = re.findall(r"`(\w+)`(?: ([\w.-]+))?", ROWS[kind.__name__])
        assert [name for name, _ in named] == [each.name for each in fields(kind)]
        defaults = {each.name: each.default for each in fields(kind) if each.default not in (MISSING, None)}
        assert {name: json.loads(value) for name, value in named if value} == defaults


def test_the_example_has_what_the_page_speaks_of() -> None:
    kinds = {node["layer"]["type"] for node in json.loads(EXAMPLE)["nodes"]}
    assert kinds <= ROWS.keys()
    assert graph_from_json(EXAMPLE).classes == 10


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(600)
def test_a_run_grows_the_example(tmp_path: Path) -> None:
    """From a bias, unpadded and rectangular kernels, ReLU6 and adaptive pooling, to a valid result."""
    (tmp_path / "example.json").write_text(EXAMPLE, encoding="utf-8")
    words = ["run", "--seed", tmp_path / "example.json", "--directory", tmp_path / "run", "--device", "cpu"]
    words += ["--max-trials", 12, "--set", "training.epochs=[2]"]
    command = [sys.executable, "-m", "aiperf", *map(str, words)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500, env=environ())
    assert "VALID, class smoke" in ended.stdout, ended.stdout + ended.stderr
    run = replay(read_journal(RunFiles(tmp_path / "run").journal))
    assert sum(story.state is State.COMPLETE for story in run.trials.values()) == 12
    kinds = {type(step) for story in run.trials.values() for step in story.trial.morphisms}
    assert len(kinds) >= 4, kinds
