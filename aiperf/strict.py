"""JSON whose numbers are numbers: finite, and no larger than a column of them holds."""

from __future__ import annotations

import json
import re
from math import isinf
from typing import Any

__all__ = ["parsed"]

LARGEST = (1 << 63) - 1
"""What a column of whole numbers holds."""
DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
_NUMBER = re.compile(rb"(?:^|[\[:,\s])-?(?:[0-9]{19}|[0-9.]+[eE]\+?[0-9]{3}|N|I)")
"""One to look at closely; in JSON it follows a bracket, a colon, a comma or a space."""


def parsed(raw: bytes, text: int = 0) -> Any:
    """Raises ValueError for what is no such JSON, RecursionError for what is nested too deeply.

    `text`: of so many bytes at the end the caller knows that no number is in them.
    """
    decoder = _STRICT if _doubtful(raw[: len(raw) - text]) else _FAST
    return decoder.decode(raw.decode())


def _doubtful(raw: bytes) -> bool:
    """Whether a number may be too large, or none: so many digits, such an exponent, a word like NaN.

    Hashes look so as well, but for what stands before them; the quick look spares most lines the other.
    """
    plain = raw.translate(DIGITS, b"+.")
    if b"0" * 19 in plain or b"0e000" in plain or b"N" in plain or b"I" in plain:
        return _NUMBER.search(raw) is not None
    return False


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"{text:.20} is too large")
    return number


def _whole(text: str) -> int:
    number = int(text)
    if abs(number) > LARGEST:
        raise ValueError(f"{text:.20}… is too large")
    return number


_FAST = json.JSONDecoder()  # without a call of ours for every number
_STRICT = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, parse_int=_whole)
