"""What `peak` and `count --roofline` measure with."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from aiperf.commands.measuring import _bound
from aiperf.ranks.process import WAITING


@pytest.mark.parametrize(("chosen", "found"), [({}, "1000"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)])
def test_threads_sleep_soon_unless_somebody_chose_otherwise(
    chosen: dict[str, str], found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside four other programs on two cores a product of spinning threads took 28 ms instead of 0.1. Torch
    reads it when it is imported, which the module of the devices does."""
    own = {name: value for name, value in os.environ.items() if name not in WAITING}
    device = SimpleNamespace(bind=lambda kind, index: os.environ.get("GOMP_SPINCOUNT"))
    monkeypatch.setattr(os, "environ", own | chosen)
    monkeypatch.setitem(sys.modules, "aiperf.device", device)
    bound: object = _bound("cpu")
    assert bound == found
