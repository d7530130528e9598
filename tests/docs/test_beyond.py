"""docs/beyond.md: its program loads a run's best network as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.tree import ROOT

PAGE = (ROOT / "docs/beyond.md").read_text(encoding="utf-8")


@pytest.mark.torch
def test_the_program_looks_at_the_best_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.M | re.S)
    assert "runs/<id>" in program
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/<id>").symlink_to(ROOT / "tests/recorded/groups")
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "beyond.md", "exec"), {})
    shown = "5,040 parameters; validation error 0.00%\ntorch.Size([1, 4])\n"
    assert capsys.readouterr() == (shown, "")
