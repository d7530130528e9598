"""The README shows the packages as they are, each with a clause."""

from __future__ import annotations

import pytest

from tests.house.readme import faults, shown
from tests.house.tree import ROOT, expect_none, tracked

README = (ROOT / "README.md").read_text(encoding="utf-8")
REAL = ["a/__init__.py", "a/b/__init__.py", "a/b/c.py", "a/d/e.py", "f/g/h.py", "i.py", ".ci/run"]


def page(tree: str) -> str:
    return f"# Title\n\n## The tree\n\nWords.\n\n```\n{tree}```\n\n## More\n\n```\ncode\n```\n"


def test_the_readme_shows_the_real_tree() -> None:
    expect_none(faults(shown(README), tracked()))


def test_every_entry_has_a_clause() -> None:
    expect_none(f"{path}: no clause" for path, clause in shown(README).items() if not clause)


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        ("a/  x\n  b/  y\n  d/  z\nf/  w\n", []),
        ("a/  x\nf/  w\n", []),
        ("a/  x\n  b/  y\nf/  w\n", ["a/d/: not in the README"]),
        ("a/  x\nf/  w\n  k/  v\n", ["f/g/: not in the README", "f/k/: in the README only"]),
        ("a/  x\n", ["f/: not in the README"]),
    ],
)
def test_a_difference_is_found(tree: str, fault: list[str]) -> None:
    assert faults(shown(page(tree)), REAL) == fault
