"""Runs by a search of another package: what is recorded, made again, unknown, refused, and never ranked; and
the one line that is left of it if it raises."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.config import load_preset, with_overrides
from aiperf.errors import AiperfError, ConfigError
from aiperf.journal.events import Opened
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.proposing.foreign_search import SearchFailed
from aiperf.proposing.proposals import libraries
from aiperf.rules.eligibility import foreseen
from aiperf.rules.reproduction import search
from aiperf.rules.verdict import evidence_of
from tests.aiperf.rules.forged import each
from tests.house.tree import ROOT
from tests.journals import Scene, Simulation, Timed, replayed, told, write_run
from tests.mpi.jobs import QUICK
from tests.nas.search.test_installed_searches import SOURCES, install

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
    return each(Opened, lambda event: replace(event, libraries=libraries(event.config)))(told(SCENE))


def looked_at(run: Replay) -> tuple[bool, str, list[str]]:
    seen = search(evidence_of(run, None))
    return seen.known, seen.text, list(seen.contradictions)


def test_its_proposals_are_made_again_by_the_same_version_alone(packages: Path) -> None:
    lines = recorded()
    run = replayed(lines)
    assert run.opened.libraries == {**run.opened.libraries, "lowest-search": "1.5"}
    number = len(run.trials)
    assert number > 10
    assert looked_at(run) == (True, f"{number} of {number} proposals reproduced", [])

    by_evolution = replayed([lines[0], *told(Scene(minutes=0.3))[1:]])
    known, _, contradictions = looked_at(by_evolution)
    assert (known, len(contradictions)) == (True, 1), "its own proposals are another's"

    install(packages, "1.6")
    text = "the run's proposals depend on lowest-search 1.5, but 1.6 is installed"
    assert looked_at(run) == (False, text, [])

    install(packages, "1.5", "lowest = lowest_search:Failing")
    known, text, contradictions = looked_at(run)
    assert (known, contradictions) == (False, []), "what failed here is this installation"
    assert "lowest_search:Failing) failed when asked for trial" in text


def test_without_it_the_journal_is_read_and_its_search_is_unknown(
    packages: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = write_run(tmp_path / "run", recorded())
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(packages)])
    run = replay(read_journal(files.journal))
    assert run.opened.config.search.name == "lowest"
    gone = "the search 'lowest' is not installed; install its package"
    assert looked_at(run) == (False, gone, [])


def test_a_configuration_takes_what_is_installed_lists_it_and_is_never_ranked(packages: Path) -> None:
    config = with_overrides(load_preset("digits"), {"search.name": "lowest"})
    known = "evolution, final, foresight, random, bayesian, lowest"
    listed = f"search.name is 'highest'; it must be one of {known}"
    with pytest.raises(ConfigError, match=f"^{listed}$"):
        with_overrides(config, {"search.name": "highest"})
    ranked = load_preset("ranked")
    own = set(foreseen(with_overrides(ranked, {"search.name": "lowest"}), {})) - set(foreseen(ranked, {}))
    assert own == {"the search 'lowest' comes from another package"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Unmade", r"when it was made: RuntimeError: no memory \(lowest_search.py, line \d+\)"),
        ("Mute", r"when asked for trial 3: TypeError: its answer is a NoneType, not a Candidate \(.*\)"),
        ("Failing", r"when asked for trial \d+: KeyError: 2 \(lowest_search.py, line \d+\)"),
        ("Deaf", r"when trial 2 was reported to it: ValueError \(lowest_search.py, line \d+\)"),
    ],
)
def test_what_it_raises_is_one_line(packages: Path, name: str, said: str) -> None:
    install(packages, "1.5", f"lowest = lowest_search:{name}")
    remedy = "; correct it, or choose another with --search"
    text = rf"^the search 'lowest' \(lowest_search:{name}\) failed {said}{remedy}$"
    with pytest.raises(AiperfError, match=text) as raised:  # with which any run ends in one line
        Simulation(SCENE).run()
    assert type(raised.value) is SearchFailed


def typed(packages: Path | None, *words: object) -> subprocess.CompletedProcess[str]:
    path = f"{ROOT}:{QUICK}{f':{packages}' if packages else ''}"
    command = [sys.executable, "-m", "aiperf", *map(str, words)]
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_a_run_with_a_distribution_that_pip_installed(tmp_path: Path) -> None:
    shutil.copytree(SOURCES, tmp_path / "sources")  # pip builds there
    target, run = tmp_path / "target", tmp_path / "run"
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation"]
    made = [*pip, "--target", str(target), str(tmp_path / "sources")]
    subprocess.run(made, check=True, timeout=200, capture_output=True)
    options = ["--max-trials", 6, "--device", "cpu", "--search", "lowest", "--set", "training.epochs=[2]"]
    ran = typed(target, "run", "--directory", run, *options, "--set", "training.format=fp32")
    assert "VALID, class smoke" in ran.stdout, ran.stdout + ran.stderr
    assert "· ranked architecture: the seed is residual-8-16-32, not resnet50; " in ran.stdout
    first = json.loads((run / "journal.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert first["libraries"]["lowest-search"] == "1.5"
    assert "proposals reproduced" in typed(target, "validate", run).stdout
    assert "the search 'lowest' is not installed" in " ".join(typed(None, "validate", run).stdout.split())
    refused = typed(None, "run", "--directory", tmp_path / "again", "--search", "lowest")
    assert refused.returncode == 1
    known = "evolution, final, foresight, random, bayesian"
    assert f"search.name is 'lowest'; it must be one of {known}\n" in refused.stderr
