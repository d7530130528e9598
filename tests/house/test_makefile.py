"""The README's commands are whole: a shell can read each line, and they name the extras that they install."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.house.tree import ROOT


@pytest.mark.parametrize(("target", "extras"), [("run", "'.[run,report]'"), ("test", "'.[dev]'")])
def test_a_new_environment_is_given_its_extras(target: str, extras: str, tmp_path: Path) -> None:
    """As `make` would do it in a fresh clone, up to the shell's reading of it: nothing is carried out."""
    told = subprocess.run(
        ["make", "--dry-run", f"VENV={tmp_path / 'new'}", target],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert f"-e {extras};" in told.stdout
    read = subprocess.run(["bash", "-n"], input=told.stdout, capture_output=True, text=True, timeout=60)
    assert (read.returncode, read.stderr) == (0, "")
