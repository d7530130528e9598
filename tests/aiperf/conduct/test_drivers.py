"""Every driver goes through every course as the conduct does by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.aiperf.conduct.courses import SCRIPTS, Script, expected
from tests.aiperf.conduct.driven import pretended, simulated

EXPECTED = expected()


@pytest.mark.parametrize("driven", [simulated, pretended], ids=lambda driven: driven.__name__)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_driver_without_torch(
    script: Script, driven: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert driven(script, tmp_path, monkeypatch) == EXPECTED[script.name]
