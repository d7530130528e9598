"""A person at the keyboard, for every test of the sub-commands."""

from __future__ import annotations

from functools import cache

import pytest

from aiperf.ranks.process import describe_device
from tests.aiperf.commands.typed import Typed


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    return Typed(monkeypatch, capsys)


asked_once = cache(describe_device)


@pytest.fixture(autouse=True)
def described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """This host's devices are asked for in a process of their own: once for all tests."""
    monkeypatch.setattr("aiperf.ranks.worker.describe_device", asked_once)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without their figures: drawing is most of the work."""
    monkeypatch.setattr("analysis.pages.report.pictures", lambda judged, found: iter(()))
