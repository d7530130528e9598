"""A person at the keyboard, for every test of the sub-commands."""

from __future__ import annotations

import pytest

from tests.aiperf.groups import PROCESSOR


@pytest.fixture(autouse=True)
def described(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process is started to look at this host's devices."""
    monkeypatch.setattr("aiperf.ranks.process.describe_device", lambda place, kind: PROCESSOR)
