"""Reading of TOML files from users, with bounds on the memory that the reader takes for them."""

from __future__ import annotations

import sys
from typing import Any

LARGEST_BYTES = 1 << 16
"""Maximum size of a file in bytes; our own files have a fortieth of it."""
MOST_DOTS = 1000
"""Maximum number of dots per line: for a key with n parts the reader keeps n² names, which is 270 MiB for
8,000 parts."""


def parsed(text: str) -> dict[str, Any]:
    """The table that the TOML text states. Raises ValueError for invalid TOML, or a number with too many
    digits; RecursionError for deeply nested arrays."""
    if sys.version_info >= (3, 11):  # imported here, because commands that read a run read no such file
        import tomllib
    else:
        import tomli as tomllib
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > MOST_DOTS:
            raise ValueError(f"line {number} has more than {MOST_DOTS} dots")
    try:
        found: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not valid TOML: {error}") from None
    return found
