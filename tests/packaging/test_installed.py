"""What pip installs: the command with all its files, and without extras what looks at results."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from aiperf.clash import PACKAGES
from aiperf.errors import MissingExtra
from tests.house.tree import ROOT, files
from tests.packaging.cloned import cloned

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


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """One for both tests: first without the extra that trains, then with it."""
    return Environment(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder]
    subprocess.run([*command, cloned(folder / "clone")], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real one, by the environment of these tests, which has torch."""
    directory = tmp_path_factory.mktemp("real") / "run"
    command = [sys.executable, "-m", "aiperf", "run", "--device", "cpu", "--minutes", "0.1"]
    command += ["--set", "training.validate_every_examples=500"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "--directory", directory], check=True, cwd=ROOT, env=environment)
    return directory


@pytest.mark.torch
def test_without_an_extra_a_real_run_is_looked_at_and_none_begun(
    wheel: Path, environment: Environment, run: Path
) -> None:
    scored = [sys.executable, "-m", "aiperf", "score", run]
    here = subprocess.run(scored, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    environment.install(str(wheel))
    looks = (["score"], ["validate"], ["status"], ["graph", "0"], ["export", "--csv"], ["compare", run])
    for word, *others in looks:
        answer = environment.type(word, run, *others)
        assert (answer.returncode, answer.stderr) == (0, ""), word
        assert answer.stdout if word != "score" else answer.stdout == here
    environment.install(f"{wheel}[report]")
    assert environment.type("report", run).returncode == 0
    runs = (["run"], ["run", "--dry-run"], ["resume", run], ["doctor"], ["peak"], ["count", "--roofline"])
    for words in (*runs, ["validate", run, "--reevaluate"]):
        answer = environment.type(*words)
        assert answer.returncode
        assert answer.stderr == f"aiperf-hpc: {MissingExtra('torch', 'run')}\n"
    assert list(environment.elsewhere.iterdir()) == [], "a run that cannot be left a directory"


def test_pip_installs_the_command_with_all_its_files(wheel: Path, environment: Environment) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == {path for path in files() if path.split("/")[0] in PACKAGES}
    chosen = [sys.executable, str(ROOT / ".ci/choose_torch.py"), str(environment.python)]
    torch = subprocess.run(chosen, check=True, capture_output=True, text=True).stdout.strip()
    environment.install(torch, f"{wheel}[run]")
    for words in (["--help"], ["count", "--seed", "resnet50"], ["run", "--dry-run", "--device", "cpu"]):
        answer = environment.type(*words)
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout
