"""The two commands, on a machine that has nothing yet."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from aiperf.clash import PACKAGES
from tests.house.tree import ROOT, files


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The repository's files, and nothing that was made from them."""
    for path in files():
        (tmp_path / "clone" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / "clone" / path)
    return tmp_path / "clone"


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    settled = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", *arguments], cwd=folder, capture_output=True, text=True, env=settled, timeout=900
    )


def test_an_old_python_is_refused_in_one_line(tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    pretend = "import sys; sys.version_info = (3, 9, 18); exec(sys.argv[2])"
    old.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{pretend}" "$@"\n')
    old.chmod(0o755)
    for target in ("run", "test", "test-pure"):
        answer = make(ROOT, target, f"PYTHON={old}", f"VENV={tmp_path / 'venv'}")
        complaint, _, rest = answer.stderr.partition("\n")
        assert complaint == f"aiperf-hpc needs Python 3.10 or newer; {old} is 3.9: make PYTHON=python3.11"
        assert rest.startswith("make: ***")
        assert not (tmp_path / "venv").exists()


def test_help_names_every_target_a_user_types() -> None:
    assert {"make run", "make test"} <= set(make(ROOT).stdout.replace("  ", "\n").splitlines())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_is_installed_is_not_installed_again(clone: Path) -> None:
    python = f"PYTHON={sys.executable}"
    first = make(clone, ".venv/.installed", python)
    assert first.returncode == 0, first.stderr
    assert make(clone, "--question", ".venv/.installed", python).returncode == 0
    later = (clone / ".venv/.installed").stat().st_mtime + 1  # some file systems know whole seconds only
    os.utime(clone / "constraints.txt", (later, later))
    assert make(clone, "--question", ".venv/.installed", python).returncode == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_pip_installs_the_command_with_all_its_files(clone: Path, tmp_path: Path) -> None:
    bin = tmp_path / "venv/bin"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    chosen = [sys.executable, ".ci/choose_torch.py", str(bin / "python")]
    torch = subprocess.run(chosen, cwd=clone, check=True, capture_output=True, text=True).stdout.strip()
    pip = [str(bin / "python"), "-m", "pip"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(clone)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == {path for path in files() if path.split("/")[0] in PACKAGES}
    options = ["-q", "--no-compile", "-c", str(clone / "constraints.txt")]
    subprocess.run([*pip, "install", *options, torch, str(wheel)], check=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for arguments in (["--help"], ["count", "--seed", "resnet50"]):
        answer = subprocess.run(
            [bin / "aiperf-hpc", *arguments], cwd=elsewhere, capture_output=True, text=True
        )
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout
