"""The README shows the tree as it is, each entry with a clause."""

from __future__ import annotations

import pytest

from tests.house.readme import faults, shown, updated
from tests.house.tree import ROOT, expect_none, tracked

README = (ROOT / "README.md").read_text(encoding="utf-8")
REAL = ["a/__init__.py", "a/b.py", "c/e.py", "d.py"]


def page(tree: str) -> str:
    return f"# Title\n\n## The tree\n\nWords.\n\n```\n{tree}```\n\n## More\n\n```\ncode\n```\n"


def test_the_readme_shows_the_real_tree() -> None:
    expect_none(faults(shown(README), tracked()))


def test_every_entry_has_a_clause() -> None:
    expect_none(f"{path}: no clause" for path, clause in shown(README).items() if not clause)


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        ("d.py  z\na/    x\n  b.py  y\nc/  w\n", []),
        ("a/    folded\nc/  w\nd.py  z\n", []),
        ("a/    x\n  f.py  y\nc/  w\nd.py  z\n", ["a/b.py: not in the README", "a/f.py: in the README only"]),
        ("a/    x\nc/  w\n", ["d.py: not in the README"]),
    ],
)
def test_a_difference_is_found(tree: str, fault: list[str]) -> None:
    assert faults(shown(page(tree)), REAL) == [f"{line}; make tree" for line in fault]


def test_the_tree_is_brought_up_to_date() -> None:
    """Clauses and the order of folders stay, what is gone goes, what is folded stays folded."""
    before = page("gone.py   g\nc/   folded\na/   x\n  b.py  y\n  gone.py  g\n")
    after = page("c/      folded\na/      x\n  b.py  y\nd.py\n")
    assert updated(before, REAL) == after
    assert updated(after, REAL) == after
