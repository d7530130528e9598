"""A worker that trains goes through every course as the conduct does by itself, and so does a group."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.data import Data
from aiperf.parallel.parallel import Solo
from aiperf.ranks.world import ALONE
from tests.aiperf.conduct.courses import SCRIPTS, Script, expected, heard
from tests.aiperf.conduct.trained import IN_A_GROUP, synthetic, trained

EXPECTED = expected()


@pytest.fixture(scope="module")
def data() -> Data:
    return synthetic()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_worker_that_trains(
    script: Script, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = trained(script, data, tmp_path, ALONE, Solo(), monkeypatch)
    assert heard(script, said) == EXPECTED[script.name]


def test_a_group_of_two_processes_does_what_its_leader_decides(tmp_path: Path) -> None:
    """Only the leader speaks, but for the failure that each rank has by itself."""
    command = [sys.executable, "-m", "tests.aiperf.conduct.trained"]
    started = [
        subprocess.Popen([*command, str(rank), str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    try:
        leader, other = (json.loads(rank.communicate(timeout=120.0)[0]) for rank in started)
    finally:
        for rank in started:
            rank.kill()
            rank.communicate()
    assert leader == {name: EXPECTED[name] for name in IN_A_GROUP}
    failed = {"a parent's weights are nowhere": "  trial 0: FAILED\n"}
    assert other == {name: f"{name}\n{failed.get(name, '')}" for name in IN_A_GROUP}
