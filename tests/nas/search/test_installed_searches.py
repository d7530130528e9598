"""Searches of other packages, by what is installed on the path."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from nas.search import SEARCHES, Evolution, SearchError, distributions_of_search, search_named, search_names
from tests.tables import ComesTo

SOURCES = Path(__file__).with_name("lowest")
"""A distribution of somebody else's with a search, to be built."""


def install(
    folder: Path, version: str, entries: str = "lowest = lowest_search:Lowest", name: str = "lowest-search"
) -> None:
    """What pip would write into a folder of packages."""
    shutil.copy(SOURCES / "lowest_search.py", folder)
    for old in folder.glob(f"{name.replace('-', '_')}-*.dist-info"):
        shutil.rmtree(old)
    write_distribution(folder, name, version, f"[nas.searches]\n{entries}")


def write_distribution(folder: Path, name: str, version: str, entry_points: str) -> None:
    """What makes it known to Python."""
    about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(f"{entry_points}\n")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lowest_search", raising=False)
    return tmp_path


def test_it_is_found_by_its_entry_point(packages: Path) -> None:
    assert search_names() == [*SEARCHES]
    install(packages, "1.5")
    assert search_names() == [*SEARCHES, "lowest"]
    assert search_named("lowest").__qualname__ == "Lowest"
    assert distributions_of_search("lowest") == ("lowest-search",)
    assert distributions_of_search("bayesian") == ("scikit-learn",)


def test_a_name_of_our_own_stays_ours(packages: Path) -> None:
    install(packages, "1", "evolution = lowest_search:Lowest")
    assert search_names() == [*SEARCHES]
    assert search_named("evolution") is Evolution
    assert distributions_of_search("evolution") == ()


def test_what_is_no_search_is_one_line(packages: Path, comes_to_what_was_read: ComesTo) -> None:
    def named(entry: str) -> object:
        install(packages, "1", entry)
        return search_named("lowest")

    comes_to_what_was_read("refused_searches.txt", {"named": named})


def test_two_of_one_name_are_refused(packages: Path) -> None:
    install(packages, "1")
    install(packages, "1", "lowest = another:Lowest", "another")
    with pytest.raises(
        SearchError, match=r"^two searches are named 'lowest': \S+ and \S+; uninstall one of them$"
    ):
        distributions_of_search("lowest")
