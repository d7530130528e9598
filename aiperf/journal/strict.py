"""JSON whose numbers are numbers: finite, and no larger than a column of them holds."""

from __future__ import annotations

import json
import sys
from typing import Any

LARGEST = (1 << 63) - 1
"""What a column of whole numbers holds."""
LARGEST_FLOAT = sys.float_info.max
FEW_DIGITS = 18
"""Of so many digits, or fewer, no whole number is too large."""


def parsed(raw: bytes) -> Any:
    """Raises ValueError for what is no such JSON, RecursionError for what is nested too deeply."""
    return _DECODER.decode(raw.decode())


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if not -LARGEST_FLOAT <= number <= LARGEST_FLOAT:
        raise ValueError(f"{text:.20} is too large")
    return number


def _whole(text: str) -> int:
    number = int(text)
    if len(text) > FEW_DIGITS and abs(number) > LARGEST:
        raise ValueError(f"{text:.20}… is too large")
    return number


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, parse_int=_whole)
