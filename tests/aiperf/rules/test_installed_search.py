"""Runs by a search of another package: what is recorded, made again, unknown, refused, and never ranked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.config import load_preset, with_overrides
from aiperf.errors import ConfigError
from aiperf.journal.events import Opened
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.proposing.proposals import libraries
from aiperf.rules.eligibility import foreseen
from aiperf.rules.proposals_again import search
from aiperf.rules.rule import Evidence
from aiperf.score.lineage import recount
from aiperf.score.score import score
from tests.house.tree import ROOT
from tests.journals import Scene, Timed, told, write_run
from tests.nas.search.installed_search import install, write_sources

SCENE = Scene(minutes=0.3, changes=(("search.name", "lowest"),))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "lowest_search", raising=False)
    install(folder, "1.5")
    return folder


def recorded() -> list[Timed]:
    (t, opened), *others = told(SCENE)
    assert isinstance(opened, Opened)
    return [(t, replace(opened, libraries=libraries(opened.config))), *others]


def run_of(lines: list[Timed]) -> Replay:
    run = Replay()
    for t, event in lines:
        run.add(t, event)
    return run


def looked_at(run: Replay) -> tuple[bool, str, list[str]]:
    counted = recount(run)
    seen = search(Evidence(run, counted, score(run, counted.counts), None))
    return seen.known, seen.text, list(seen.contradictions)


def test_its_proposals_are_made_again_by_the_same_version_alone(packages: Path) -> None:
    lines = recorded()
    run = run_of(lines)
    assert run.opened.libraries == {**run.opened.libraries, "lowest-search": "1.5"}
    number = len(run.trials)
    assert number > 10
    assert looked_at(run) == (True, f"{number} of {number} proposals reproduced", [])

    by_evolution = [(t, e) for t, e in told(Scene(minutes=0.3)) if not isinstance(e, Opened)]
    known, _, contradictions = looked_at(run_of([lines[0], *by_evolution]))
    assert (known, len(contradictions)) == (True, 1), "its own proposals are another's"

    install(packages, "1.6")
    told_now = "the run's proposals depend on lowest-search 1.5, but 1.6 is installed"
    assert looked_at(run) == (False, told_now, [])


def test_without_it_the_journal_is_read_and_its_search_is_unknown(
    packages: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = write_run(tmp_path / "run", recorded())
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(packages)])
    run = replay(read_journal(files.journal))
    assert run.opened.config.search.name == "lowest"
    gone = "the search 'lowest' is not installed; install its package"
    assert looked_at(run) == (False, gone, [])


def test_a_configuration_takes_what_is_installed_and_lists_it(packages: Path) -> None:
    config = with_overrides(load_preset("digits"), {"search.name": "lowest"})
    assert config.search.name == "lowest"
    listed = "search.name is 'highest'; it must be one of evolution, foresight, random, bayesian, lowest"
    with pytest.raises(ConfigError, match=f"^{listed}$"):
        with_overrides(config, {"search.name": "highest"})


def test_it_is_never_ranked(packages: Path) -> None:
    ranked = load_preset("ranked")
    own = set(foreseen(with_overrides(ranked, {"search.name": "lowest"}), {})) - set(foreseen(ranked, {}))
    assert own == {"the search 'lowest' comes from another package"}


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_a_run_with_a_distribution_that_pip_installed(tmp_path: Path) -> None:
    write_sources(tmp_path / "sources")
    target = tmp_path / "target"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--target",
    ]
    subprocess.run([*pip, target, tmp_path / "sources"], check=True, timeout=200, capture_output=True)
    words = [
        "run",
        "--search",
        "lowest",
        "--max-trials",
        6,
        "--directory",
        tmp_path / "run",
        "--device",
        "cpu",
    ]
    words += ["--set", "training.epochs=[2]", "--set", "training.format=fp32"]

    def typed(*words: object, path: Path | None = target) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": f"{ROOT}{f':{path}' if path else ''}", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "aiperf", *map(str, words)]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)

    ran = typed(*words)
    assert "VALID, class smoke" in ran.stdout, ran.stdout + ran.stderr
    assert "· ranked architecture: the seed is residual-4-8-16, not resnet50; " in ran.stdout
    first = json.loads((tmp_path / "run/journal.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert first["libraries"]["lowest-search"] == "1.5"
    assert "proposals reproduced" in typed("validate", tmp_path / "run").stdout
    without = typed("validate", tmp_path / "run", path=None)
    assert "unknown the search 'lowest' is not installed" in " ".join(without.stdout.split()) or (
        "the search 'lowest' is not installed" in without.stdout
    )
    refused = typed(*words[:-6], path=None)
    assert refused.returncode == 1
    assert (
        "search.name is 'lowest'; it must be one of evolution, foresight, random, bayesian\n"
        in refused.stderr
    )
