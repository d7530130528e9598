"""`profile` as a person types it, and what `peak` and `count --roofline` measure with."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aiperf.commands.peak import _bound
from aiperf.profiling.work import TRACE, ProfileWork
from aiperf.ranks.process import WAITING
from aiperf.wire.profile_records import Recorded
from tests.aiperf.commands.typed import Typed
from tests.analysis.readings.test_profile import RECORDED
from tests.journals import Scene, told, write_run

SEED = ("profile", "--seed", "residual-4-8-16")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ProfileWork]:
    """What would be profiled; what comes of it is a record of another step."""
    found: list[ProfileWork] = []

    def profile_locally(work: ProfileWork, directory: Path) -> Recorded:
        found.append(work)
        (directory / TRACE).write_text("{}")
        return replace(RECORDED, trace=TRACE if work.trace else "")

    monkeypatch.setattr("aiperf.commands.profile.profile_locally", profile_locally)
    return found


def test_each_size_is_profiled_from_the_smallest(
    typed: Typed, asked: list[ProfileWork], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert (
        typed(*SEED, "--sizes", "32,16", "--batch", 8, "--devices", 2, "--steps", 3, "--json", "-o", out) == 0
    )
    assert [(work.data.size, work.hyper.batch_size, work.ranks, work.rounds) for work in asked] == [
        (16, 8, 2, 3),
        (32, 8, 2, 3),
    ]
    assert [work.graph["input"] for work in asked] == [[1, 16, 16], [1, 32, 32]]
    written = json.loads(typed.out)
    assert json.loads((out / "profile.json").read_text()) == written
    assert written["network"] == "seed residual-4-8-16"
    assert len(written["sizes"]) == 2
    assert (out / "profile.html").read_text().startswith("<!doctype html>")
    assert (out / "trace-4.json").read_text() == "{}"


def test_a_trial_is_rebuilt_with_its_batch_and_data(
    typed: Typed, asked: list[ProfileWork], tmp_path: Path
) -> None:
    write_run(tmp_path / "run", told(Scene(groups=1)))
    assert typed("profile", tmp_path / "run", 1, "--format", "fp32") == 0
    assert typed.out.startswith("network ...... trial 1 of ")
    (work,) = asked
    assert work.training.format == "fp32"
    typed("graph", tmp_path / "run", 1)
    assert json.loads(typed.out) == work.graph


@pytest.mark.parametrize(("chosen", "found"), [({}, "1000"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)])
def test_threads_sleep_soon_unless_somebody_chose_otherwise(
    chosen: dict[str, str], found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside four other programs on two cores a product of spinning threads took 28 ms instead of 0.1. Torch
    reads it when it is imported, which the module of the devices does."""
    own = {name: value for name, value in os.environ.items() if name not in WAITING}
    device = SimpleNamespace(
        bind=lambda kind, index: SimpleNamespace(note="", spins=os.environ.get("GOMP_SPINCOUNT"))
    )
    monkeypatch.setattr(os, "environ", own | chosen)
    monkeypatch.setitem(sys.modules, "aiperf.device", device)
    bound: Any = _bound("cpu")
    assert bound.spins == found
