"""For all tests: one thread for each torch, `--pure` for the floors without torch, hypothesis' profiles."""

from __future__ import annotations

import gc
import os
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

import hypothesis
import pytest

from tests.house.floors import needs_torch

pytest_plugins = ["tests.processes"]

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
    told = "only the tests of the floors without torch; an import of torch raises"
    parser.addoption("--pure", action="store_true", help=told)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--pure"):
        sys.meta_path.insert(0, _NoTorch())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--pure"):
        above = [item for item in items if item.get_closest_marker("torch")]
        config.hook.pytest_deselected(items=above)
        items[:] = [item for item in items if item not in above]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """In a pure run, a test that needs torch, and a folder whose conftest does."""
    if not config.getoption("--pure"):
        return None
    module = collection_path / "conftest.py" if collection_path.is_dir() else collection_path
    named = module.name.startswith("test_") or (collection_path.is_dir() and module.is_file())
    return (named and needs_torch(module)) or None


def pytest_collection_finish() -> None:
    """What the tests import stays: the collector of cycles need not look through it in each of them."""
    gc.freeze()
