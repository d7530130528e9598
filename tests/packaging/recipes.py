"""Starting the tools that recipes are for, and reading what is in a recipe."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.house.tree import ROOT

FOLDER = ROOT / "packaging"
TOOLS = ROOT / ".venv-recipes/bin"


def tool(name: str) -> str:
    """The path of a tool that `make test-recipes` installs, or that Debian has as a package."""
    own = TOOLS / name
    found = str(own) if own.exists() else shutil.which(name)
    assert found, f"no {name} in .venv-recipes or on PATH; make test-recipes says what it needs"
    return found


def interpreter(version: str) -> str:
    """The path of Python `version`: on PATH, or one that pyenv keeps beside the PATH."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for candidate in (shutil.which(f"python{version}"), *kept.glob(f"{version}.*/bin/python")):
        # A shim of pyenv stands on PATH for each version, and starts only some.
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return str(candidate)
    raise AssertionError(f"no Python {version} on PATH or under pyenv")


def said(*words: object, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """What a command prints on standard output. Fails with all that it said."""
    command = [str(word) for word in words]
    answer = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    assert answer.returncode == 0, f"{' '.join(command)}:\n{answer.stdout}{answer.stderr}"
    return answer.stdout
