"""What pip installs without extras: what looks at results."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.errors import MissingExtra
from tests.house.tree import ROOT
from tests.packaging.recipes import cloned, said

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_without_an_extra_a_real_run_is_looked_at_and_no_other_begins(tmp_path: Path) -> None:
    """With the extra `run` one begins: `make run` does that in a new environment."""
    run = Path(shutil.copytree(ROOT / "tests/recorded/groups", tmp_path / "run"))
    python, elsewhere = tmp_path / "venv/bin/python", tmp_path / "elsewhere"
    said(sys.executable, "-m", "venv", tmp_path / "venv")
    elsewhere.mkdir()

    def install(requirement: str) -> None:
        said(
            python, "-m", "pip", "install", "-q", "--no-compile", "-c", ROOT / "constraints.txt", requirement
        )

    def typed(*words: object) -> subprocess.CompletedProcess[str]:
        command = [python.with_name("aiperf-hpc"), *map(str, words)]
        return subprocess.run(command, cwd=elsewhere, capture_output=True, text=True)

    here = said(sys.executable, "-m", "aiperf", "score", run, cwd=ROOT)
    build = ("-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path)
    said(sys.executable, *build, cloned(tmp_path / "clone"))
    (wheel,) = tmp_path.glob("*.whl")
    install(str(wheel))
    looks = (["score"], ["validate"], ["status"], ["graph", "0"], ["export", "--csv"], ["compare", run])
    for word, *others in looks:
        answer = typed(word, run, *others)
        follows = f"Next: aiperf-hpc package {run}\n" if word == "validate" else ""
        assert (answer.returncode, answer.stderr) == (0, follows), word
        assert answer.stdout if word != "score" else answer.stdout == here
    install(f"{wheel}[report]")
    assert typed("report", run).returncode == 0
    missing = str(MissingExtra("torch", "run")).replace(sys.executable, str(python))
    for words in (["run"], ["resume", run], ["doctor"], ["peak"], ["validate", run, "--reevaluate"]):
        answer = typed(*words)
        assert answer.returncode
        assert answer.stderr == f"aiperf-hpc: {missing}\n"
    assert list(elsewhere.iterdir()) == [], "a run that cannot be left a directory"
