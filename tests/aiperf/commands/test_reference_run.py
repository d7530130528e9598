"""`run --like`: another run's settings, what is said to differ, and what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiperf.commands import reference_run
from aiperf.commands.reference_run import config_like, differences_text
from aiperf.config import Config, with_overrides
from aiperf.journal.events import Opened, Origin
from aiperf.journal.run_files import RunFiles
from nas.graph import Graph
from nas.record import graph_to_json
from nas.seeds import residual
from tests import journals
from tests.aiperf.commands.typed import Typed
from tests.analysis.packages import make
from tests.house.tree import ROOT
from tests.tables import ComesTo

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


THINNER = residual(widths=(4, 8, 12))
GONE = replace(SCENE.config, search=replace(SCENE.config.search, name="gone"))
FROM_FILE = with_overrides(SCENE.config, {"seed_architecture": "seed.json"})


def test_settings_that_differ_are_said_and_what_cannot_be_the_same_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """A seed file must be here and the same, the search installed, and the job long enough."""

    def like(
        given: dict[str, Any],
        config: Config = SCENE.config,
        seed: Graph | None = None,
        job_seconds: float | None = None,
    ) -> list[str]:
        """The settings that differ from those of a run with this configuration."""
        if seed is not None:
            Path("seed.json").write_text(json.dumps(graph_to_json(seed)), encoding="utf-8")
        shutil.rmtree("run", ignore_errors=True)
        recorded = {"seed_graph": graph_to_json(THINNER)} if config is FROM_FILE else {}
        run_in(Path("run"), config=config, **recorded)
        monkeypatch.setattr(reference_run, "job_seconds_left", lambda environment, now: job_seconds)
        found, differences = config_like(Path("run"), given)
        assert found == with_overrides(config, given)
        return differences

    comes_to_what_was_read("like.txt", globals() | {"like": like})


def test_a_run_of_text_is_rehearsed_as_it_was(typed: Typed) -> None:
    words = ("--like", ROOT / "tests/recorded/language", "--dry-run", "--examples-per-second", 500)
    assert typed("run", *words, "--device", "cpu") == 0, typed.err
    assert "language: proposals are those of version 3 of the search, there 2; data, devices" in typed.err
    assert "data ..................... text, windows of 256 bytes: " in typed.out
