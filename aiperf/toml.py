"""TOML that somebody wrote, with a bound on what its reader makes of it."""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LARGEST_BYTES = 1 << 16
"""Of a file; ours have a fortieth of it."""
MOST_DOTS = 1000
"""In a line: of a key with n parts the reader keeps n² names, 270 MiB for 8,000."""


def parsed(text: str) -> dict[str, Any]:
    """Raises ValueError for what is not valid TOML, or a number of too many digits; RecursionError for arrays
    of arrays."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > MOST_DOTS:
            raise ValueError(f"line {number} has more than {MOST_DOTS} dots")
    try:
        found: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not valid TOML: {error}") from None
    return found
