"""Environment variables, as launchers, schedulers, sites and users set them.

All of them are read here, so that an empty value, a word in the place of a number, or bytes of another
encoding have one meaning everywhere. The environment is an argument, so that a test can state it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from aiperf.errors import WorldError

MOST_DIGITS = 18
"""Longest number that is read; Python refuses to convert one of 4,301 digits."""
SHOWN = 60
"""Longest value that a message shows, in characters; a variable may have 128 KiB."""


def raw(environment: Mapping[str, str], name: str) -> str | None:
    """The value as it is, for a path, or where an empty value has a meaning of its own; None if it is not
    set."""
    return environment.get(name)


def word(environment: Mapping[str, str], name: str) -> str:
    """The value without spaces around it; empty if it is not set. Bytes that are not UTF-8 are replaced, so
    that it can be recorded and shown."""
    value = environment.get(name, "")
    return value.encode(errors="surrogateescape").decode(errors="replace").strip()


def number(text: str) -> int | None:
    """The whole number, 0 or more, that a text is; None for any other text."""
    digits = text.strip()
    return int(digits) if re.fullmatch(rf"[0-9]{{1,{MOST_DIGITS}}}", digits) else None


def whole(environment: Mapping[str, str], name: str, least: int, most: int, remedy: str) -> int | None:
    """The whole number in a variable that a launcher sets; None if it is not set or empty.

    Raises WorldError, with the variable's name, for anything else and for a number outside of its range.
    """
    value = word(environment, name)
    if not value:
        return None
    found = number(value)
    if found is None or not least <= found <= most:
        short = value if len(value) <= SHOWN else f"{value[:SHOWN]}…"
        raise WorldError(f"{name} is {short!r}; it must be a whole number from {least} to {most:,}; {remedy}")
    return found
