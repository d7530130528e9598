"""What a browser shows, for the tests of pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Shown:
    """A page, and all that it complained of or asked for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
