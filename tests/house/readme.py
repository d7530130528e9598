"""The tree in the README: read, compared with the files, and brought up to date by `make tree`."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.house.tree import ROOT, tracked

# The first code block under the heading.
BLOCK = re.compile(r"(?P<before>^## The tree\n.*?^```\w*\n)(?P<tree>.*?)(?=^```)", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^(?P<indent> *)(?P<name>[\w.\-]+/?)(?: +(?P<clause>\S.*))?$")


def shown(readme: str) -> dict[str, str]:
    """Entries of the tree, path to clause, in their order; a folder's path ends with a slash."""
    block = BLOCK.search(readme)
    assert block, "README.md: no code block under '## The tree'"
    entries: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in block["tree"].splitlines():
        entry = ENTRY.match(line)
        assert entry, f"README.md: not an entry of the tree: {line!r}"
        indent = len(entry["indent"])
        above = [(depth, path) for depth, path in above if depth < indent]
        path = (above[-1][1] if above else "") + entry["name"]
        entries[path] = entry["clause"] or ""
        if path.endswith("/"):
            above.append((indent, path))
    return entries


def faults(entries: Iterable[str], real: Iterable[str]) -> list[str]:
    """Differences in every folder of which the tree shows an entry, the top included."""
    there, listed = _children(real), _by_folder(entries)
    return [
        f"{path}: {'not in the README' if path in there[folder] else 'in the README only'}; make tree"
        for folder in sorted(listed)
        for path in sorted(there[folder] ^ listed[folder])
    ]


def updated(readme: str, real: Iterable[str]) -> str:
    """The README with its tree as it really is.

    Clauses and the order of folders stay. What is new gets the first words of its docstring, to be edited;
    a new folder is shown closed. What is shown closed stays so.
    """
    entries = shown(readme)
    there, listed = _children(real), _by_folder(entries)
    order = {path: place for place, path in enumerate(entries)}
    lines: list[tuple[str, str]] = []

    def show(folder: str, depth: int) -> None:
        for path in sorted(there[folder], key=lambda path: _place(path, order)):
            lines.append(("  " * depth + path[len(folder) :], entries.get(path) or _first_words(path)))
            if path in listed:
                show(path, depth + 1)

    show("", 0)
    width = max(len(name) for name, _ in lines) + 2
    tree = "".join(f"{name:<{width}}{clause}".rstrip() + "\n" for name, clause in lines)
    return BLOCK.sub(lambda block: block["before"] + tree, readme, count=1)


def _children(paths: Iterable[str]) -> Mapping[str, set[str]]:
    """Of each folder, the files and folders in it. An __init__.py is there wherever a package is."""
    children: defaultdict[str, set[str]] = defaultdict(set)
    for path in paths:
        parts = path.split("/")
        if parts[-1] in ("__init__.py", "py.typed"):
            continue
        for depth in range(len(parts)):
            slash = "/" if depth < len(parts) - 1 else ""
            children["".join(f"{part}/" for part in parts[:depth])].add("/".join(parts[: depth + 1]) + slash)
    return children


def _by_folder(entries: Iterable[str]) -> Mapping[str, set[str]]:
    listed: defaultdict[str, set[str]] = defaultdict(set)
    for entry in entries:
        listed[re.sub(r"[^/]+/?$", "", entry)].add(entry)
    return listed


def _place(path: str, order: Mapping[str, int]) -> tuple[bool, int, str]:
    """Folders in the order in which they are shown, new ones after them, then files by name."""
    return (not path.endswith("/"), order.get(path, len(order)) if path.endswith("/") else 0, path)


def _first_words(path: str) -> str:
    source = ROOT / path / "__init__.py" if path.endswith("/") else ROOT / path
    if source.suffix != ".py" or not source.is_file():
        return ""
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    words = re.split(r"[.:;](?:\s|$)", docstring, maxsplit=1)[0].replace("\n", " ")
    return re.sub(r"^[A-Z](?=[a-z ])", lambda first: first[0].lower(), words)


def write(readme: Path = ROOT / "README.md") -> None:
    text = readme.read_text(encoding="utf-8")
    readme.write_text(updated(text, tracked()), encoding="utf-8")


if __name__ == "__main__":
    write()
