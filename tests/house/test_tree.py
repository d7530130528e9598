"""The README shows the tree as it is, each entry with a clause."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

import pytest

from tests.house.tree import ROOT, expect_none, files

ENTRY = re.compile(r"^(?P<indent> *)(?P<name>[\w.\-]+/?)(?: +(?P<clause>\S.*))?$")


def shown(readme: str) -> dict[str, str]:
    """Entries of the tree, path to clause: the first code block under the heading "The tree"."""
    block = re.search(r"^## The tree\n.*?^```\w*\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert block, "README.md: no code block under '## The tree'"
    entries: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in block.group(1).splitlines():
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
    children: defaultdict[str, set[str]] = defaultdict(set)
    for path in real:
        parts = path.split("/")
        for depth in range(len(parts)):
            slash = "/" if depth < len(parts) - 1 else ""
            children["".join(f"{part}/" for part in parts[:depth])].add("/".join(parts[: depth + 1]) + slash)
    listed: defaultdict[str, set[str]] = defaultdict(set)
    for entry in entries:
        listed[re.sub(r"[^/]+/?$", "", entry)].add(entry)
    return [
        f"{path}: {'not in the README' if path in children[folder] else 'in the README only'}"
        for folder in sorted(listed)
        # An __init__.py is there wherever a package is.
        for path in sorted(children[folder] ^ listed[folder])
        if not path.endswith(("/__init__.py", "/py.typed"))
    ]


def test_the_readme_shows_the_real_tree() -> None:
    expect_none(faults(shown((ROOT / "README.md").read_text(encoding="utf-8")), files()))


def test_every_entry_has_a_clause() -> None:
    entries = shown((ROOT / "README.md").read_text(encoding="utf-8"))
    expect_none(f"{path}: no clause" for path, clause in entries.items() if not clause)


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        ("a/  x\n  b.py  y\nd.py  z", []),
        ("a/  folded\nd.py  z", []),
        ("a/  x\n  e.py  y\nd.py  z", ["a/b.py: not in the README", "a/e.py: in the README only"]),
        ("a/  x", ["d.py: not in the README"]),
    ],
)
def test_a_difference_is_found(tree: str, fault: list[str]) -> None:
    assert faults(shown(f"## The tree\n\n```\n{tree}\n```\n"), ["a/__init__.py", "a/b.py", "d.py"]) == fault
