"""The two commands, on a machine that has nothing yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.packaging.recipes import cloned


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What make answers in this folder, with no settings but these."""
    unset = ("MAKE", "MFLAGS", "ACCELERATOR")  # which a test may run under
    settled = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
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


@pytest.mark.parametrize(("target", "extras"), [("run", "'.[run,report]'"), ("test", "'.[dev]'")])
def test_a_new_environment_is_given_its_extras(target: str, extras: str, tmp_path: Path) -> None:
    """As `make` would do it in a fresh clone, up to the shell's reading of it: nothing is carried out."""
    answer = make(ROOT, "--dry-run", f"VENV={tmp_path / 'new'}", target)
    assert answer.returncode == 0, answer.stderr
    assert f"-e {extras};" in answer.stdout
    parsed = subprocess.run(["bash", "-n"], input=answer.stdout, capture_output=True, text=True, timeout=60)
    assert (parsed.returncode, parsed.stderr) == (0, "")


@pytest.mark.parametrize(
    ("was", "wanted", "adds"),
    [("", "", True), ("nvidia", "", True), ("nvidia", "none", False), (None, "", False)],
)
def test_tests_replace_nothing_that_make_run_has_installed(
    tmp_path: Path, was: str | None, wanted: str, adds: bool
) -> None:
    """Another accelerator that is named is a wish; that the login node has none is not."""
    venv = tmp_path / "venv"
    venv.mkdir()
    (venv / ".made").touch()
    if was is not None:
        (venv / ".installed").touch()
        (venv / ".accelerator").write_text(f"{was}\n")
    answer = make(ROOT, "--dry-run", f"VENV={venv}", *[f"ACCELERATOR={wanted}"] * bool(wanted), "test")
    assert answer.returncode == 0, answer.stderr
    assert (".ci/add_extra.py dev" in answer.stdout, "-e '.[dev]'" in answer.stdout) == (adds, not adds)


def test_help_names_every_target_a_user_types() -> None:
    assert {"make run", "make test"} <= set(make(ROOT).stdout.replace("  ", "\n").splitlines())


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """An environment that make takes for one of its own, with everything installed."""
    environment = tmp_path / "venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin/python").symlink_to(sys.executable)
    for name in (".made", ".installed-dev", ".installed"):
        (environment / name).touch()
    return environment


@pytest.mark.parametrize(
    ("was", "wanted", "again"), [("", "", 0), ("", "nvidia", 1), ("nvidia", "nvidia", 0)]
)
def test_another_accelerator_is_installed_for_again(made: Path, was: str, wanted: str, again: int) -> None:
    (made / ".accelerator").write_text(f"{was}\n")
    for target in (".installed", ".installed-dev"):
        answer = make(ROOT, "--question", str(made / target), f"VENV={made}", f"ACCELERATOR={wanted}")
        assert answer.returncode == again, answer.stderr


def test_what_is_installed_is_installed_again_when_something_else_is_stated(
    made: Path, tmp_path: Path
) -> None:
    clone, stamp = cloned(tmp_path / "clone"), made / ".installed"
    (made / ".accelerator").write_text("\n")
    moment = (clone / "constraints.txt").stat().st_mtime + 1  # some file systems know whole seconds only
    for path, later in ((stamp, 0), (clone / "constraints.txt", 1)):
        os.utime(path, (moment + later, moment + later))
        answer = make(clone, "--question", str(stamp), f"VENV={made}", "ACCELERATOR=")
        assert answer.returncode == later, answer.stderr
