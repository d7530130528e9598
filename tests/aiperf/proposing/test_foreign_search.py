"""A search of another package that raises: one line that names it, and a journal that is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aiperf.journal.events import LegEnded, Opened
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.proposing.foreign_search import SearchFailed
from aiperf.proposing.proposals import libraries
from aiperf.rules.proposals_again import search
from aiperf.rules.rule import Evidence
from aiperf.score.lineage import recount
from aiperf.score.score import score
from tests.house.tree import ROOT
from tests.journals import Scene, Simulation
from tests.nas.search.installed_search import install

SCENE = Scene(minutes=0.3, changes=(("search.name", "lowest"),))
NAMED = r"^the search 'lowest' \(lowest_search:"
REMEDY = r"; correct it, or choose another by --search$"
Install = Callable[[str], Path]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lowest_search", raising=False)

    def install_as(name: str) -> Path:
        install(tmp_path, "1.5", f"lowest = lowest_search:{name}")
        return tmp_path

    return install_as


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Unmade", r"when it was made: RuntimeError: no memory \(lowest_search.py, line \d+\)"),
        (
            "Mute",
            r"when asked for trial 3: TypeError: its answer is a NoneType, not a Candidate \(.*\)",
        ),
        ("Failing", r"when asked for trial \d+: KeyError: 2 \(lowest_search.py, line \d+\)"),
        ("Deaf", r"when told of trial 2: ValueError \(lowest_search.py, line \d+\)"),
    ],
)
def test_what_it_raises_is_one_line(installed: Install, name: str, said: str) -> None:
    installed(name)
    with pytest.raises(SearchFailed, match=rf"{NAMED}{name}\) failed {said}{REMEDY}"):
        Simulation(SCENE).run()


def test_proposals_that_cannot_be_made_again_are_unknown(installed: Install) -> None:
    """Not a contradiction: what failed here is this installation."""
    installed("Lowest")
    lines = Simulation(SCENE).run()
    run = Replay()
    for t, event in lines:
        if isinstance(event, Opened):
            object.__setattr__(event, "libraries", libraries(event.config))
        run.add(t, event)
    counted = recount(run)
    evidence = Evidence(run, counted, score(run, counted.counts), None)
    assert search(evidence).known
    installed("Failing")
    seen = search(evidence)
    assert (seen.known, list(seen.contradictions)) == (False, [])
    assert "lowest_search:Failing) failed when asked for trial" in seen.text


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_a_run_ends_in_one_line_and_keeps_its_journal(installed: Install, tmp_path: Path) -> None:
    folder = installed("Failing")
    words = ["run", "--search", "lowest", "--max-trials", "9", "--device", "cpu", "--directory", "run"]
    words += ["--set", "training.epochs=[1]", "--set", "training.format=fp32"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "aiperf", *words]
    ran = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )
    assert ran.returncode == 1
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("aiperf-hpc: the search 'lowest' (lowest_search:Failing) failed when asked for ")
    assert "Traceback" not in ran.stdout + ran.stderr
    run = replay(read_journal(tmp_path / "run" / "journal.jsonl"))
    assert len(run.arrivals) >= 2
    assert isinstance(run.leg.ended, LegEnded)
    assert run.leg.ended.reason == f"error: {last.removeprefix('aiperf-hpc: ')}"
