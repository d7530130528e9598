"""A person at the keyboard, who need not wait for figures."""

from __future__ import annotations

import sys

import pytest

from aiperf.commands.main import main


class Typed:
    """Calls the command and holds what it answered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys
        self.out = self.err = ""

    def __call__(self, *words: object) -> int:
        self.monkeypatch.setattr(sys, "argv", ["aiperf-hpc", *map(str, words)])
        code = main()
        self.out, self.err = self.capsys.readouterr()
        return code


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    return Typed(monkeypatch, capsys)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without their figures, where something else is tried: drawing is most of the work."""
    monkeypatch.setattr("analysis.pages.report.pictures", lambda judged, found: iter(()))
