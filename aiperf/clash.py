"""Whether another distribution owns, or hides, one of the packages this program is made of.

NVIDIA's inference client is called `aiperf` on the package index and installs a package of that name. In
one folder the two overwrite each other's files; what would run then is neither. Packages called `nas`,
`launch` or `analysis` are common: one in PYTHONPATH or in the working directory must not stand before ours.
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

from aiperf.errors import AiperfError

DISTRIBUTION = "aiperf-hpc"
PACKAGES = ("aiperf", "nas", "launch", "analysis")

SHARED = ("__init__.py", "__main__.py")
"""Files of `aiperf` that NVIDIA's has as well (0.13.0): its removal takes them along."""

HOME = Path(__file__).resolve().parents[1]

_APART = "install aiperf-hpc into a separate virtual environment (python3 -m venv)"


def refuse_clash() -> None:
    """Raises AiperfError with one sentence when a package is not, or not only, this program's own, or not
    whole any more."""
    if clash := foreign_owner([str(HOME)]):
        raise AiperfError(f"{clash}; remedy: {_APART}")
    if clash := missing_files():
        raise AiperfError(f"{clash}; remedy: {_again()}")
    put_own_first()
    if clash := hidden_package(_read_by_children()):
        raise AiperfError(f"{clash}; remedy: start it from another directory")


def put_own_first() -> None:
    """Where a foreign package would be read in place of one of ours, puts ours before it: here, and for the
    processes that this one starts."""
    if not hidden_package() and not hidden_package([os.getcwd(), *sys.path]):
        return
    sys.path.insert(0, str(HOME))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HOME), os.environ.get("PYTHONPATH")]))
    os.environ["PYTHONSAFEPATH"] = "1"  # the working directory stands before all else without it


def _read_by_children() -> list[str]:
    """PYTHONSAFEPATH is of Python 3.11 and newer."""
    return sys.path if sys.version_info >= (3, 11) else [os.getcwd(), *sys.path]


def foreign_owner(path: Iterable[str]) -> str | None:
    """Which distribution in these folders also installs one of our packages, and where; None when none does.

    The folders' files are read as text. The library that knows distributions takes longer to import than all
    else that comes before a command, and makes an object for each of torch's ten thousand files.
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
    """Which of the files that the other program has as well are not in this folder of `aiperf`."""
    missing = [f"aiperf/{name}" for name in SHARED if not (home / name).exists()]
    what = f"{' and '.join(missing)} of aiperf-hpc {'is' if len(missing) == 1 else 'are'} missing"
    return f"{what}; another package named aiperf may have been removed" if missing else None


def _again() -> str:
    """The command that brings the files back, from where they came: no index has this program."""
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
    """Which of our packages would be read from another place than this one, on this or `sys.path`."""
    home, search = HOME, list(sys.path if path is None else path)
    for name in PACKAGES:
        found = PathFinder.find_spec(name, search)
        # Without an origin it is a mere folder of that name, which a real package precedes.
        if not (home / name / "__init__.py").exists() or found is None or found.origin is None:
            continue
        if Path(found.origin).resolve().parent != home / name:
            return f"{found.origin} hides the package {name} of aiperf-hpc in {home}"
    return None


def _installs(info: Path) -> set[str]:
    """Top-level packages, from the list that some builders write, else from the list of files."""
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
    """As the index compares names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
