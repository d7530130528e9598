"""A person at the keyboard."""

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
