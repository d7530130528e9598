"""docs/limits.md says what the code does: every number in it is the code's own."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from tests.house.tree import ROOT

ROW = re.compile(r"^\| `([\w.]+)\.([A-Z_]+)` \| ([^|]+) \|", re.MULTILINE)
pytestmark = pytest.mark.torch

STATED = ROW.findall((ROOT / "docs/limits.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("module", "name", "value"), STATED, ids=[f"{m}.{n}" for m, n, _ in STATED])
def test_a_number_is_the_one_of_the_code(module: str, name: str, value: str) -> None:
    assert str(getattr(import_module(module), name)) == value


def test_there_is_a_table() -> None:
    assert len(STATED) > 20
