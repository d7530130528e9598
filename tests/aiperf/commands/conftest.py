"""A person at the keyboard, for every test of the sub-commands."""

from __future__ import annotations

import pytest

from tests.aiperf.groups import PROCESSOR


@pytest.fixture(autouse=True)
def described(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process is started to look at this host's devices."""
    monkeypatch.setattr("aiperf.ranks.process.describe_device", lambda place, kind: PROCESSOR)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without their figures: drawing is most of the work."""
    monkeypatch.setattr("analysis.pages.report.pictures", lambda judged, found: iter(()))
