"""What `setup.py` states, for the tests that hold something against it."""

from __future__ import annotations

import runpy
from typing import Any

import pytest
import setuptools

from tests.house.tree import ROOT


@pytest.fixture
def stated(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments of `setup`."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", seen.update)
    monkeypatch.chdir(ROOT)
    runpy.run_path(str(ROOT / "setup.py"))
    return seen
