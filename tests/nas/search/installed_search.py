"""A distribution of somebody else's with a search: as files to build, and as pip leaves it."""

from __future__ import annotations

from pathlib import Path

CODE = """
from nas.search import Search

class Lowest(Search):
    def choose(self, rng, living):
        return min(living, key=lambda one: min(error for _, error in one.observation.errors))

class NoSearch:
    pass

class Unmade(Search):
    def __init__(self, *given):
        raise RuntimeError("no\\nmemory")

class Mute(Search):
    def ask(self, number, round_):
        return super().ask(number, round_) if number < 3 else None

class Failing(Lowest):
    def choose(self, rng, living):
        return {}[len(living)]

class Deaf(Lowest):
    def tell(self, observation):
        super().tell(observation)
        if observation.number == 2:
            raise ValueError
"""

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "lowest-search"
version = "1.5"
[project.entry-points."nas.searches"]
lowest = "lowest_search:Lowest"
[tool.setuptools]
py-modules = ["lowest_search"]
"""


def write_sources(folder: Path) -> None:
    folder.mkdir()
    (folder / "lowest_search.py").write_text(CODE)
    (folder / "pyproject.toml").write_text(PROJECT)


def install(
    folder: Path, version: str, entries: str = "lowest = lowest_search:Lowest", name: str = "lowest-search"
) -> None:
    """What pip would write into a folder of packages."""
    (folder / "lowest_search.py").write_text(CODE)
    for old in folder.glob(f"{name.replace('-', '_')}-*.dist-info"):
        for file in old.iterdir():
            file.unlink()
        old.rmdir()
    write_distribution(folder, name, version, f"[nas.searches]\n{entries}")


def write_distribution(folder: Path, name: str, version: str, entry_points: str) -> None:
    """What makes it known to Python."""
    about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(f"{entry_points}\n")
