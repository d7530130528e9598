"""A small benchmarks/device.py on a processor."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.on_device.parts import Setting


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting("cpu", tmp_path, 6.0)
