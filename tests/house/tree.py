"""What the repository holds: files as git lists them, modules by name."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("aiperf", "nas", "launch", "analysis")


def files() -> tuple[str, ...]:
    """Paths of all files that git tracks or would add, relative to the root."""
    return _listed("--cached", "--others", "--exclude-standard")


def tracked() -> tuple[str, ...]:
    """Paths of the files that git tracks: what a clone will have."""
    return _listed("--cached")


def sources(*folders: str) -> list[Path]:
    """The Python files in these folders, tracked or not yet."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def pairs(table: str) -> dict[str, str]:
    """The rows of a table beside this file: `key | value`."""
    text = (Path(__file__).parent / table).read_text(encoding="utf-8")
    return dict(line.split(" | ", 1) for line in text.splitlines())


def expect_none(faults: Iterable[str]) -> None:
    """Fails with every fault on a line of its own."""
    found = sorted(faults)
    assert not found, "\n" + "\n".join(found)


def module_name(path: Path) -> str:
    """Name of the module in a file of the repository: aiperf/data/__init__.py is aiperf.data."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _listed(*options: str) -> tuple[str, ...]:
    # In a checkout of another user's (a container's mount), git answers only when told to.
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", *options]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return tuple(sorted(path for path in listed.split("\0") if path and (ROOT / path).is_file()))
