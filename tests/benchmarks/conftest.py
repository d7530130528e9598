"""A small benchmarks/device.py on a processor, and other values in its modules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.on_device.parts import Setting


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting("cpu", tmp_path, 6.0)


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts values into a module or a class, by name."""

    def put_all(place: object, **values: object) -> None:
        for name, value in values.items():
            monkeypatch.setattr(place, name, value)

    return put_all
