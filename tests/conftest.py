"""For all tests: one thread for each torch, the tiers and `--pure`, the profiles of hypothesis."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.abc import MetaPathFinder
from itertools import count
from pathlib import Path

import hypothesis
import pytest

from tests.house.floors import needs_torch

pytest_plugins = ["tests.processes", "tests.aiperf.commands.typed"]

SUITES = ("slow", "gpu", "npu", "mpi", "horovod", "slurm", "sge", "nni", "recipes", "browser", "triton")
"""Marks of suites: a file that has a test of one names it, for other files are not imported for it."""

# Oversubscribed threads collapse on small machines, and a sum's last bit depends on their number. So it is
# one, whatever else the shell has set, unless somebody asks for more: TEST_THREADS=2.
# Torch reads this when it is first imported; the tests' child processes too.
os.environ["OMP_NUM_THREADS"] = os.environ.get("TEST_THREADS", "1")

# The same examples each time, so that a change is to blame for a failure; "explore" looks for new ones.
hypothesis.settings.register_profile("repeat", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))


class _NoTorch(MetaPathFinder):
    """An import of torch raises, also where it is installed. (None in `sys.modules` would do that too, but
    libraries look there to see whether torch has been imported.)"""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("this is a pure run: no torch", name=name)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pure", action="store_true", help="only tests without torch; importing it raises")
    parser.addoption("--tier", choices=("first", "compute"), help="first: tests without torch, and contracts")
    parser.addoption("--accept", action="store_true", help="write anew the texts that tests compare whole")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--pure"):
        sys.meta_path.insert(0, _NoTorch())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skips the import of files, and of folders by their conftest, that hold no test of this tier."""
    module = collection_path / "conftest.py" if collection_path.is_dir() else collection_path
    if not module.is_file() or not module.name.startswith(("test_", "conftest")):
        return None
    if config.getoption("--pure"):
        return needs_torch(module) or None
    if collection_path.is_dir():
        return None
    marks = _marks(module)
    if config.getoption("--tier") == "first":
        return (needs_torch(module) and "contract" not in marks) or None
    if config.getoption("--tier") == "compute":
        return not (needs_torch(module) or "torch" in marks) or None
    return not _demanded(config.getoption("-m")) <= marks or None


@cache
def _marks(module: Path) -> frozenset[str]:
    """The marks that a file names."""
    return frozenset(re.findall(r"\bmark\.(\w+)", module.read_text(encoding="utf-8")))


def _demanded(expression: str) -> frozenset[str]:
    """The marks without which no test is chosen, so that a suite of few files imports these alone. An
    expression with alternatives demands none."""
    if re.search(r"\bor\b|\(", expression):
        return frozenset()
    terms = [term.strip() for term in re.split(r"\band\b", expression)]
    return frozenset(term for term in terms if term and not term.startswith("not "))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    hidden = {
        f"{item.nodeid} has the mark {mark.name}, which its file does not name"
        for item in items
        for mark in item.iter_markers()
        if mark.name not in _marks(item.path) and mark.name in SUITES
    }
    if hidden:
        raise pytest.UsageError(*sorted(hidden))
    tier = "pure" if config.getoption("--pure") else config.getoption("--tier")
    if tier is None:
        return
    is_chosen = [_is_first(item, tier == "pure") == (tier != "compute") for item in items]
    config.hook.pytest_deselected(items=[item for item, chosen in zip(items, is_chosen) if not chosen])
    items[:] = [item for item, chosen in zip(items, is_chosen) if chosen]


def _is_first(item: pytest.Item, is_pure: bool) -> bool:
    """Whether a test needs no torch, or is one of the contracts of the code that does."""
    reaches_torch = item.get_closest_marker("torch") is not None or needs_torch(item.path)
    return not reaches_torch or (item.get_closest_marker("contract") is not None and not is_pure)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the test, in which it is: paths in messages are relative."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    """Names of folders that are not there, for a test that makes many."""
    return (tmp_path / f"{number}" for number in count())


@pytest.fixture
def as_it_was_read(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with the whole of a file beside the test, which a person has read. To accept new texts:
    `pytest --accept FILE`; read what it wrote before you commit it."""

    def compare(text: str, name: str) -> None:
        path = request.path.parent / name
        if request.config.getoption("--accept"):
            path.write_bytes(text.encode())
        assert text == path.read_bytes().decode()

    return compare


@pytest.fixture
def comes_to_what_was_read(
    request: pytest.FixtureRequest, as_it_was_read: Callable[[str, str], None]
) -> Callable[[str, Mapping[str, object]], None]:
    """Compares what each expression of a table beside the test comes to, by these names: a value or an
    error. A row is `expression => outcome`; to add one, write the expression, and accept the outcome."""

    def compare(table: str, names: Mapping[str, object]) -> None:
        rows = (request.path.parent / table).read_text(encoding="utf-8").splitlines()
        calls = [row.partition(" => ")[0] for row in rows]
        as_it_was_read("".join(f"{call} => {_outcome(call, names)}\n" for call in calls), table)

    return compare


def _outcome(call: str, names: Mapping[str, object]) -> str:
    try:
        return repr(eval(call, dict(names)))
    except AssertionError:  # of the test itself: it must never be accepted
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def pytest_collection_finish() -> None:
    """What the tests import stays: the collector of cycles need not look through it in each of them."""
    gc.freeze()
