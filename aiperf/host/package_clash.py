"""Checks whether another distribution owns, or hides, one of the packages of this program.

NVIDIA's inference client is called `aiperf` on the package index and installs a package with that name. In
one folder the two overwrite each other's files, and the result is neither of them. Packages called `nas`,
`launch` or `analysis` are common: one in PYTHONPATH or in the working directory must not be imported instead
of ours. Nor must a library: a site's PYTHONPATH, or a user's ~/.local, may hold a numpy for another Python or
an old torch, which Python finds before those of the environment.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import FrameType

from aiperf.errors import AiperfError, ForeignLibrary
from aiperf.host import variables

DISTRIBUTION = "aiperf-hpc"
LARGEST_BYTES = 64 << 20
"""Most that is read of a distribution's list of files; that of torch has 1.5 MB."""
SHOWN = 200
"""Longest part of another program's message that is shown, in characters."""
PACKAGES = ("aiperf", "nas", "launch", "analysis")

SHARED = ("__init__.py", "__main__.py")
"""Files of `aiperf` that NVIDIA's package has as well (version 0.13.0), so uninstalling it removes them."""

HOME = Path(__file__).resolve().parents[2]

_APART = "install aiperf-hpc into a separate virtual environment (python3 -m venv)"


def refuse_clash() -> None:
    """Raises AiperfError if one of the packages belongs to another distribution as well, is hidden by another
    package, or is not complete any more."""
    if clash := foreign_owner([str(HOME)]):
        raise AiperfError(f"{clash}; remedy: {_APART}")
    if clash := missing_files():
        raise AiperfError(f"{clash}; remedy: {_again()}")
    refuse_old_library("numpy")
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


def missing_files(home: Path = Path(__file__).parents[1]) -> str | None:
    """A message on those of the SHARED files that are missing in this folder of `aiperf`; None if all
    exist."""
    missing = [f"aiperf/{name}" for name in SHARED if not (home / name).exists()]
    what = f"{' and '.join(missing)} of aiperf-hpc {'is' if len(missing) == 1 else 'are'} missing"
    return f"{what}; another package named aiperf may have been removed" if missing else None


def _again() -> str:
    """The command that restores the files from where they were installed, since the program is on no package
    index."""
    from importlib.metadata import Distribution, PackageNotFoundError
    from urllib.parse import unquote

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


def refuse_old_library(*names: str) -> None:
    """Raises ForeignLibrary if one of these libraries would be imported from outside of this environment, in
    a version that is older than this program needs."""
    for name in names:
        folder = _imported_from(name)
        if folder is None or not _is_foreign(folder):
            continue
        needed, version = _needed(name), _stated_version(folder, name)
        if needed and version and _numbers(version) < _numbers(needed):
            seen = f"{name} {version} is imported from {folder}, but {needed} or newer is needed"
            raise ForeignLibrary(seen, _remedy(folder))


def foreign_library(*names: str) -> ForeignLibrary | None:
    """The first of these libraries that is imported from outside of this environment, as the error that it
    probably is where a process died without a word."""
    for name in names:
        if (folder := _imported_from(name)) is not None and _is_foreign(folder):
            return ForeignLibrary(
                f"{name} is imported from {folder}, not from this environment", _remedy(folder)
            )
    return None


def foreign_fault(error: Exception) -> ForeignLibrary | None:
    """The error in one line, if it comes from a library that is not this environment's, or from one that
    cannot be imported at all; None for any other error."""
    if isinstance(error, AiperfError):
        return None
    reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:SHOWN]}"
    passed = list(_imports(error))
    named = [name for name in _NAMED.findall(str(error)) if name not in PACKAGES]
    if isinstance(error, SyntaxError) and error.filename:  # its file has no step of the way
        named += [Path(error.filename).stem, *(part.name for part in Path(error.filename).parents)]
    for name, folder in (*passed, *((each, _imported_from(each)) for each in named)):
        if folder is not None and _is_foreign(folder):
            seen = f"{name} is imported from {folder}, not from this environment, and fails ({reason})"
            return ForeignLibrary(seen, _remedy(folder))
    broken = [(name, folder) for name, folder in passed if name not in sys.stdlib_module_names]
    if not broken:
        return None
    name, folder = broken[0]
    return ForeignLibrary(f"{name} in {folder} cannot be imported ({reason})", "install it again")


_NAMED = re.compile(r"\b(?:module|from|named) '([A-Za-z_]\w*)")
"""The name of a module in the message of an AttributeError or an ImportError."""


def _imports(error: Exception) -> Iterator[tuple[str, Path]]:
    """The libraries whose import an error ended, the last one first, and the folder of each."""
    frames, step = list[FrameType](), error.__traceback__
    while step is not None:  # as `traceback.walk_tb`, whose module every command would have to import
        frames.append(step.tb_frame)
        step = step.tb_next
    for frame in reversed(frames):
        name, file = str(frame.f_globals.get("__name__")), Path(frame.f_code.co_filename)
        top = name.partition(".")[0]
        depth = name.count(".") + (file.stem == "__init__")
        is_library = top not in (*PACKAGES, "__main__") and file.is_absolute() and depth < len(file.parents)
        if frame.f_code.co_name == "<module>" and is_library:
            yield top, file.parents[depth].resolve()


def _imported_from(name: str) -> Path | None:
    """The folder of the search path in which a module is found."""
    found = PathFinder.find_spec(name, sys.path)
    if found is None or found.origin is None:
        return None
    file = Path(found.origin)
    return (file.parents[1] if file.stem == "__init__" else file.parent).resolve()


def _is_foreign(folder: Path) -> bool:
    """Whether a folder stands before those of this environment in the search path, and is none of them, of
    Python's own, or of this program."""
    installed = {*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    standard = {HOME, Path(os.__file__).parent, Path(sysconfig.get_path("platstdlib"), "lib-dynload")}
    own = {Path(each).resolve() for each in installed}
    path = [Path(each).resolve() for each in sys.path]
    first = next((place for place, each in enumerate(path) if each in own), len(path))
    return folder in path[:first] and folder not in {Path(each).resolve() for each in standard}


def _needed(name: str) -> str:
    """The oldest version that this program needs; empty if it is not known."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        stated = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return ""
    versions = [re.match(rf"{name}\s*>=\s*([\d.]+)", line) for line in stated]
    return next((found[1] for found in versions if found), "")


def _stated_version(folder: Path, name: str) -> str:
    """The version that a library states in its files, because one for another Python cannot be imported;
    empty if there is none."""
    for info in sorted(folder.glob(f"{name}-*.dist-info")):
        if found := re.search(r"^Version: (\S+)", _text(info / "METADATA") or "", re.MULTILINE):
            return found[1]
    for file in ("version.py", "_version.py", "__init__.py"):
        text = _text(folder / name / file) or ""
        if found := re.search(r"""^__version__\s*(?::\s*\w+\s*)?=\s*["']([^"']+)""", text, re.MULTILINE):
            return found[1]
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version: 2.6.0+cpu is (2, 6)."""
    return tuple(int(part) for part in re.findall(r"\d{1,9}", version)[:2])


def _remedy(folder: Path) -> str:
    """How to take a folder out of the search path, by what has put it there."""
    given = (variables.raw(os.environ, "PYTHONPATH") or "").split(os.pathsep)
    if folder in {Path(each).resolve() for each in given if each}:
        return f"remove {folder} from PYTHONPATH"
    if folder == Path(site.getusersitepackages()).resolve():
        return "set PYTHONNOUSERSITE=1"
    if folder == Path.cwd():
        return "start it from another directory"
    return f"remove {folder} from Python's search path"


def _installs(info: Path) -> set[str]:
    """Top-level packages of a distribution, from top_level.txt, which some build tools write, otherwise from
    the list of files."""
    stated = _text(info / "top_level.txt")
    if stated is not None:
        return set(stated.split())
    return set(re.findall(r"^([^/,\n]+)/", _text(info / "RECORD") or "", re.MULTILINE))


def _text(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_BYTES).decode(errors="replace")
    except OSError:
        return None


def _normal(name: str) -> str:
    """The normalised name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
