"""What `peak` and `count --roofline` measure with."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from aiperf.ranks.process import WAITING

BOUND = "import os; from aiperf.commands.measuring import _bound; _bound('cpu'); print(os.environ.get({!r}))"


@pytest.mark.parametrize(("chosen", "found"), [({}, "1000"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")])
def test_threads_sleep_soon_unless_somebody_chose_otherwise(chosen: dict[str, str], found: str) -> None:
    """Beside four other programs on two cores a product of spinning threads took 28 ms instead of 0.1."""
    own = {name: value for name, value in os.environ.items() if name not in WAITING}
    words = [sys.executable, "-c", BOUND.format("GOMP_SPINCOUNT")]
    done = subprocess.run(words, env={**own, **chosen}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == found
