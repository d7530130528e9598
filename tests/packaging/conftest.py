"""What `pyproject.toml` states, for the tests that hold something against it."""

from __future__ import annotations

import runpy
from typing import Any

import pytest
from setuptools import Distribution

from tests.house.tree import ROOT


@pytest.fixture
def stated(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The distribution as setuptools reads it, by the names that its `setup` has for these. An extra has the
    requirements of those that it includes."""
    monkeypatch.chdir(ROOT)
    found = Distribution()
    found.parse_config_files(["pyproject.toml"])
    requirements = runpy.run_path(".ci/add_extra.py")["requirements"]
    return {
        **vars(found),
        **vars(found.metadata),
        "license": found.metadata.license_expression,
        "python_requires": str(found.metadata.python_requires),
        "install_requires": [*found.install_requires],
        "extras_require": {extra: requirements(extra) for extra in found.extras_require},
    }
