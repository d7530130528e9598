"""Every driver goes through every course as the conduct does by itself; a group: tests/aiperf/training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.aiperf.conduct.courses import SCRIPTS, Script, expected
from tests.aiperf.conduct.driven import pretended, simulated, trained_alone

EXPECTED = expected()


@pytest.mark.parametrize("driven", [simulated, pretended, trained_alone], ids=lambda driven: driven.__name__)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_driver(script: Script, driven: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert driven(script, tmp_path, monkeypatch) == EXPECTED[script.name]
