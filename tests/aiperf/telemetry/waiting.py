"""What another process does in a while."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(reached: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < until
        time.sleep(0.05)
