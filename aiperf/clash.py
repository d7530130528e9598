"""Checks whether another distribution owns, or hides, one of the packages of this program.

NVIDIA's inference client is called `aiperf` on the package index and installs a package with that name. In
one folder the two overwrite each other's files, and the result is neither of them. Packages called `nas`,
`launch` or `analysis` are common: one in PYTHONPATH or in the working directory must not be imported instead
of ours.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path
from urllib.parse import unquote

from aiperf import variables
from aiperf.errors import AiperfError

DISTRIBUTION = "aiperf-hpc"
PACKAGES = ("aiperf", "nas", "launch", "analysis")

SHARED = ("__init__.py", "__main__.py")
"""Files of `aiperf` that NVIDIA's package has as well (version 0.13.0), so uninstalling it removes them."""

HOME = Path(__file__).resolve().parents[1]

_APART = "install aiperf-hpc into a separate virtual environment (python3 -m venv)"


def refuse_clash() -> None:
    """Raises AiperfError if one of the packages belongs to another distribution as well, is hidden by another
    package, or is not complete any more."""
    if clash := foreign_owner([str(HOME)]):
        raise AiperfError(f"{clash}; remedy: {_APART}")
    if clash := missing_files():
        raise AiperfError(f"{clash}; remedy: {_again()}")
    put_own_first()
    if clash := hidden_package(_read_by_children()):
        raise AiperfError(f"{clash}; remedy: start it from another directory")


def put_own_first() -> None:
    """If a foreign package would be imported instead of one of ours, puts our folder first in the search
    path, for this process and those that it starts."""
    if not hidden_package() and not hidden_package([os.getcwd(), *sys.path]):
        return
    sys.path.insert(0, str(HOME))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(HOME), variables.raw(os.environ, "PYTHONPATH")])
    )
    os.environ["PYTHONSAFEPATH"] = "1"  # without it, the working directory comes first


def _read_by_children() -> list[str]:
    """Search path of child processes. Before Python 3.11, which has no PYTHONSAFEPATH, the working directory
    comes first."""
    return sys.path if sys.version_info >= (3, 11) else [os.getcwd(), *sys.path]


def foreign_owner(path: Iterable[str]) -> str | None:
    """The distribution in these folders that also installs one of our packages, and where; None if there is
    none.

    The distributions' files are read as text, because importlib.metadata takes longer to import than
    everything else before a command, and makes an object for each of torch's ten thousand files.
    """
    for folder in path:
        for info in sorted(Path(folder).glob("*.*-info")):
            taken = _installs(info) & set(PACKAGES)
            if not taken or _normal(info.stem.partition("-")[0]) == DISTRIBUTION:
                continue
            from importlib.metadata import Distribution

            found = Distribution.at(info)
            name, where = found.metadata["Name"], found.locate_file("")
            return f"{name} {found.version} in {where} also installs {', '.join(sorted(taken))}"
    return None


def missing_files(home: Path = Path(__file__).parent) -> str | None:
    """A message on those of the SHARED files that are missing in this folder of `aiperf`; None if all
    exist."""
    missing = [f"aiperf/{name}" for name in SHARED if not (home / name).exists()]
    what = f"{' and '.join(missing)} of aiperf-hpc {'is' if len(missing) == 1 else 'are'} missing"
    return f"{what}; another package named aiperf may have been removed" if missing else None


def _again() -> str:
    """The command that restores the files from where they were installed, since the program is on no package
    index."""
    from importlib.metadata import Distribution, PackageNotFoundError

    again = "pip install --force-reinstall --no-deps"
    try:
        told = json.loads(Distribution.from_name(DISTRIBUTION).read_text("direct_url.json") or "{}")
        source = str(told["url"])
    except (PackageNotFoundError, OSError, ValueError, KeyError, TypeError):
        return f"{again} . in a checkout of aiperf-hpc"
    if source.startswith("file://"):
        source = unquote(source.removeprefix("file://"))
    return f"{again} {shlex.quote(source)}"


def hidden_package(path: Iterable[str] | None = None) -> str | None:
    """A message on the first of our packages that would be imported from elsewhere, with this search path or
    with `sys.path`; None if none would be."""
    home, search = HOME, list(sys.path if path is None else path)
    for name in PACKAGES:
        found = PathFinder.find_spec(name, search)
        # Without an origin it is only a folder with that name, which any real package precedes.
        if not (home / name / "__init__.py").exists() or found is None or found.origin is None:
            continue
        if Path(found.origin).resolve().parent != home / name:
            return f"{found.origin} hides the package {name} of aiperf-hpc in {home}"
    return None


def _installs(info: Path) -> set[str]:
    """Top-level packages of a distribution, from top_level.txt, which some build tools write, otherwise from
    the list of files."""
    stated = _text(info / "top_level.txt")
    if stated is not None:
        return set(stated.split())
    return set(re.findall(r"^([^/,\n]+)/", _text(info / "RECORD") or "", re.MULTILINE))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None


def _normal(name: str) -> str:
    """The normalised name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
