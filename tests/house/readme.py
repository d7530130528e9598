"""The tree of the repository: its packages in the README, every file of it by `make tree`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from tests.house.tree import ROOT, tracked

# The first code block under the heading.
BLOCK = re.compile(r"^## The tree\n.*?^```\w*\n(?P<tree>.*?)(?=^```)", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^(?P<indent> *)(?P<name>[\w.\-]+/)(?: +(?P<clause>\S.*))?$")


def shown(readme: str) -> dict[str, str]:
    """Folders of the tree, path to clause; a path ends with a slash."""
    block = BLOCK.search(readme)
    assert block, "README.md: no code block under '## The tree'"
    entries: dict[str, str] = {}
    above = ""
    for line in block["tree"].splitlines():
        entry = ENTRY.match(line)
        assert entry, f"README.md: not a folder of the tree: {line!r}"
        path = (above if entry["indent"] else "") + entry["name"]
        above = above if entry["indent"] else entry["name"]
        entries[path] = entry["clause"] or ""
    return entries


def faults(entries: Iterable[str], real: Iterable[str]) -> list[str]:
    """Folders that are shown and are not there, or the other way round: those at the top, and those in one
    of which a folder is shown."""
    listed = set(entries)
    opened = {"./", *(f"{PurePosixPath(path).parent}/" for path in listed)}
    there = {
        folder for path in real for folder in _folders(path) if f"{PurePosixPath(folder).parent}/" in opened
    }
    return [
        f"{path}: {'not in the README' if path in there else 'in the README only'}"
        for path in sorted(there ^ listed)
    ]


def whole(real: Iterable[str]) -> Iterator[str]:
    """Every file and folder, a line each, with the first words of its docstring."""
    seen: set[str] = set()
    for path in sorted(real, key=lambda path: [(part.count("."), part) for part in path.split("/")]):
        for entry in (*_folders(path), path):
            if entry not in seen and not entry.endswith(("__init__.py", "py.typed")):
                seen.add(entry)
                depth = entry.rstrip("/").count("/")
                name = "  " * depth + entry.rstrip("/").rpartition("/")[2] + "/" * entry.endswith("/")
                yield f"{name:<28}{_first_words(entry)}".rstrip()


def _folders(path: str) -> Iterator[str]:
    """Those around a file, from the top; what begins with a dot is not a part of the tree."""
    parts = path.split("/")[:-1]
    if not path.startswith("."):
        yield from ("/".join(parts[: depth + 1]) + "/" for depth in range(len(parts)))


def _first_words(path: str) -> str:
    source = ROOT / (f"{path}__init__.py" if path.endswith("/") else path)
    if source.suffix != ".py" or not source.exists():
        return ""
    told = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return told.partition("\n")[0].rstrip(".")


if __name__ == "__main__":
    print("\n".join(whole(tracked())))
