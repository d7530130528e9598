"""A worker that trains goes through every course as the conduct does by itself; a group: test_groups.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.data import Data
from aiperf.parallel.parallel import Solo
from aiperf.ranks.world import ALONE
from tests.aiperf.conduct.courses import SCRIPTS, Script, expected, heard
from tests.aiperf.conduct.trained import synthetic, trained

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
