"""The README shows the packages as they are, each with a clause."""

from __future__ import annotations

from tests.house.readme import faults, shown
from tests.house.tree import ROOT, expect_none, tracked
from tests.tables import ComesTo

README = (ROOT / "README.md").read_text(encoding="utf-8")
REAL = ["a/__init__.py", "a/b/__init__.py", "a/b/c.py", "a/d/e.py", "f/g/h.py", "i.py", ".ci/run"]


def page(tree: str) -> str:
    return f"# Title\n\n## The tree\n\nWords.\n\n```\n{tree}```\n\n## More\n\n```\ncode\n```\n"


def test_the_readme_shows_the_real_tree() -> None:
    expect_none(faults(shown(README), tracked()))


def test_every_entry_has_a_clause() -> None:
    expect_none(f"{path}: no clause" for path, clause in shown(README).items() if not clause)


def test_a_difference_is_found(comes_to_what_was_read: ComesTo) -> None:
    names = {"faults": faults, "shown": shown, "page": page, "REAL": REAL}
    comes_to_what_was_read("planted_folders.txt", names)
