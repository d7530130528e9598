"""A small image folder, for the tests of what reads one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.config import DataConfig
from tests.aiperf.data.sets import write_folders


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> DataConfig:
    return write_folders(tmp_path_factory.mktemp("written"))


@pytest.fixture
def config(written: DataConfig, tmp_path: Path) -> DataConfig:
    """A copy that a test may damage."""
    shutil.copytree(written.path, tmp_path / "copy")
    return replace(written, path=str(tmp_path / "copy"))
