"""What pip installs without extras: what looks at results."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.errors import MissingExtra
from tests.house.tree import ROOT
from tests.packaging.recipes import cloned

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Environment:
    """A new virtual environment, and a folder elsewhere to type in."""

    def __init__(self, folder: Path) -> None:
        self.python, self.elsewhere = folder / "venv/bin/python", folder / "elsewhere"
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        self.elsewhere.mkdir()

    def install(self, *requirements: str) -> None:
        options = ["-q", "--no-compile", "-c", str(ROOT / "constraints.txt")]
        subprocess.run([self.python, "-m", "pip", "install", *options, *requirements], check=True)

    def type(self, *words: object) -> subprocess.CompletedProcess[str]:
        command = [self.python.with_name("aiperf-hpc"), *map(str, words)]
        return subprocess.run(command, cwd=self.elsewhere, capture_output=True, text=True)


def test_without_an_extra_a_real_run_is_looked_at_and_no_other_begins(tmp_path: Path) -> None:
    """With the extra `run` one begins: `make run` does that in a new environment."""
    run = Path(shutil.copytree(ROOT / "tests/recorded/groups", tmp_path / "run"))
    environment = Environment(tmp_path)
    scored = [sys.executable, "-m", "aiperf", "score", run]
    here = subprocess.run(scored, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path]
    subprocess.run([*build, cloned(tmp_path / "clone")], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    environment.install(str(wheel))
    looks = (["score"], ["validate"], ["status"], ["graph", "0"], ["export", "--csv"], ["compare", run])
    for word, *others in looks:
        answer = environment.type(word, run, *others)
        follows = f"Next: aiperf-hpc package {run}\n" if word == "validate" else ""
        assert (answer.returncode, answer.stderr) == (0, follows), word
        assert answer.stdout if word != "score" else answer.stdout == here
    environment.install(f"{wheel}[report]")
    assert environment.type("report", run).returncode == 0
    missing = str(MissingExtra("torch", "run")).replace(sys.executable, str(environment.python))
    for words in (["run"], ["resume", run], ["doctor"], ["peak"], ["validate", run, "--reevaluate"]):
        answer = environment.type(*words)
        assert answer.returncode
        assert answer.stderr == f"aiperf-hpc: {missing}\n"
    assert list(environment.elsewhere.iterdir()) == [], "a run that cannot be left a directory"
