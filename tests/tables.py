"""What compares a table beside a test with what was read of it: the fixture is of tests/conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping

ComesTo = Callable[[str, Mapping[str, object]], None]
