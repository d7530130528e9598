"""A small image folder, for the tests of what reads one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiperf.config import DataConfig
from tests.aiperf.data.sets import refusal, write_folders


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> DataConfig:
    return write_folders(tmp_path_factory.mktemp("written"))


@pytest.fixture
def config(written: DataConfig, tmp_path: Path) -> DataConfig:
    """A copy that a test may damage."""
    shutil.copytree(written.path, tmp_path / "copy")
    return replace(written, path=str(tmp_path / "copy"))


@pytest.fixture
def refused(written: DataConfig, tmp_path: Path) -> Callable[..., str]:
    """The line in which a copy is refused that was damaged, with such changes of its configuration."""

    def refused(damage: Callable[[Path], object], **changes: Any) -> str:
        root = Path(tempfile.mkdtemp(dir=tmp_path)) / "copy"
        shutil.copytree(written.path, root)
        damage(root)
        return refusal(replace(written, path=str(root), **changes)).replace(str(root), "…")

    return refused
