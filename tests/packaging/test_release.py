"""What `make release` refuses, and what the lock of `make lock` holds."""

from __future__ import annotations

import re
import runpy
from collections.abc import Mapping
from typing import Any

import pytest

from tests.house.tree import ROOT, files
from tests.packaging.recipes import pinned, required
from tests.packaging.test_metadata import PYTHONS
from tests.tables import ComesTo

UNREADY = runpy.run_path(str(ROOT / ".ci/release.py"))["unready"]
LOCKING = runpy.run_path(str(ROOT / ".ci/lock.py"))
LOCKED: Mapping[str, frozenset[str]] = LOCKING["pins"](LOCKING["LOCK"].read_text(encoding="utf-8"))


def test_a_release_is_one_clean_commit_with_one_version(comes_to_what_was_read: ComesTo) -> None:
    def unready(changelog: str, changes: str, tags_here: list[str], tags: list[str]) -> list[str]:
        return [*UNREADY("1.2.0", f"# Changelog\n\n{changelog}", changes, tags_here, tags)]

    comes_to_what_was_read("refused_releases.txt", {"unready": unready})


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_one_tested_version_of_all_that_a_run_requires(
    stated: dict[str, Any], python: str
) -> None:
    """With hashes, and without torch. What it does not name on this Python, pip would refuse there."""
    locked = pinned([*LOCKED], python)
    tested = pinned((ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines(), python)
    needed = required(stated, python, *LOCKING["EXTRAS"])
    names = {each.name.lower() for each in needed if each.name != "torch"}
    assert {name: locked.get(name) for name in names} == {name: tested[name] for name in names}
    assert "torch" not in locked
    assert all(hashes for hashes in LOCKED.values())


def test_a_lock_that_does_not_hold_is_said_line_by_line(comes_to_what_was_read: ComesTo) -> None:
    def differences(*pins: dict[str, str]) -> list[str]:
        """Between the lock and the index, with hashes that are letters."""
        locked, now = ({pin: frozenset(hashes) for pin, hashes in each.items()} for each in pins)
        return [*LOCKING["differences"](locked, now)]

    comes_to_what_was_read("refused_locks.txt", {"differences": differences})


def test_no_file_names_the_host_of_a_package_index() -> None:
    """They hold for a mirror, and a site without a network has one."""
    hosts = re.compile(rb"files\.pythonhosted|pypi\.(org|io)\b|registry\.npmjs")
    assert [path for path in files() if hosts.search((ROOT / path).read_bytes())] == []
