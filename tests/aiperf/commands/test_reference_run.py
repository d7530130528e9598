"""`run --like`: another run's settings, what is said to differ, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiperf.commands import reference_run
from aiperf.commands.reference_run import config_like, differences_text
from aiperf.config import with_overrides
from aiperf.errors import ConfigError
from aiperf.journal.events import Opened, Origin
from aiperf.journal.run_files import RunFiles
from nas.record import graph_to_json
from nas.seeds import residual
from tests import journals
from tests.aiperf.commands.typed import Typed
from tests.analysis.packages import make
from tests.house.tree import ROOT

SCENE = journals.Scene()


def run_in(directory: Path, **changes: Any) -> RunFiles:
    """A simulated run whose first line is another."""
    (t, opened), *others = journals.told(SCENE)
    assert isinstance(opened, Opened)
    return journals.write_run(directory, [(t, replace(opened, **changes)), *others])


def test_all_settings_are_those_of_the_run(tmp_path: Path) -> None:
    files = run_in(tmp_path / "run")
    run, package = files.directory, make(tmp_path / "package.tar.gz", files)
    assert config_like(run, {}) == config_like(package, {}) == (SCENE.config, [])
    rest = "data, devices and ranks are those of this machine"
    assert differences_text(run, []) == f"like {run}: same configuration; {rest}"
    config, differences = config_like(run, {"training.batch_size": 64})
    assert config == with_overrides(SCENE.config, {"training.batch_size": 64})
    assert differences == ["training.batch_size is 64, there 50"]


def test_another_program_search_and_library_is_said(tmp_path: Path) -> None:
    config = with_overrides(SCENE.config, {"search.name": "foresight"})
    was = {"config": config, "program": "0.0.9", "search": 0, "libraries": {"numpy": "0.1"}}
    run = run_in(tmp_path / "run", origin=Origin.PRETENDED, **was)
    differences, here = config_like(run.directory, {})[1], reference_run.libraries(config)["numpy"]
    assert differences == [
        "that run was pretended, and this one trains",
        f"the program is {reference_run.__version__}, there 0.0.9",
        "proposals are those of version 1 of the search, there 0",
        f"numpy is {here}, there 0.1",
    ]


def test_a_seed_file_must_be_here_and_the_same(tmp_path: Path) -> None:
    file = tmp_path / "seed.json"
    graph = residual(widths=(4, 8, 12))
    config = with_overrides(SCENE.config, {"seed_architecture": str(file)})
    run = run_in(tmp_path / "run", config=config, seed_graph=graph_to_json(graph)).directory
    remedy = f"; write it with `aiperf-hpc graph {run} 0 -o FILE`, and give --seed FILE"
    with pytest.raises(ConfigError) as refusal:
        config_like(run, {})
    assert "is neither a seed nor a file" in str(refusal.value)
    assert str(refusal.value).endswith(remedy)
    file.write_text(json.dumps(graph_to_json(residual())), encoding="utf-8")
    with pytest.raises(ConfigError) as refusal:
        config_like(run, {})
    assert str(refusal.value) == (
        f"--like {run}: {str(file)!r} is a different architecture here than in that run{remedy}"
    )
    file.write_text(json.dumps(graph_to_json(graph)), encoding="utf-8")
    assert config_like(run, {}) == (config, [])


def test_a_search_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    gone = replace(SCENE.config, search=replace(SCENE.config.search, name="gone"))
    run = run_in(tmp_path / "run", config=gone).directory
    with pytest.raises(ConfigError, match=r"^search.name is 'gone'; it must be one of evolution, "):
        config_like(run, {})
    assert config_like(run, {"search.name": "random"})[1] == ["search.name is 'random', there 'gone'"]


def test_a_job_that_is_too_short_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_in(tmp_path / "run").directory
    monkeypatch.setattr(reference_run, "job_seconds_left", lambda environment, now: 60.0)
    with pytest.raises(
        ConfigError, match=r"^--like: the span is 0.5 minutes and the job ends in 1; request "
    ):
        config_like(run, {})
    monkeypatch.setattr(reference_run, "job_seconds_left", lambda environment, now: 3600.0)
    assert config_like(run, {}) == (SCENE.config, [])


def test_a_run_of_text_is_rehearsed_as_it_was(typed: Typed) -> None:
    words = ("--like", ROOT / "tests/recorded/language", "--dry-run", "--examples-per-second", 500)
    assert typed("run", *words, "--device", "cpu") == 0, typed.err
    assert "language: proposals are those of version 3 of the search, there 2; data, devices" in typed.err
    assert "data ..................... text, windows of 256 bytes: " in typed.out
