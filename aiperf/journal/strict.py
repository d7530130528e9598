"""JSON that says one thing: no key twice, and numbers that are finite and that a column of them holds."""

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
    raise ValueError(f"{name} is not a number")


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


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a key that appears twice another reader may take the other value."""
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice:.40} appears twice")
    return record


_DECODER = json.JSONDecoder(
    object_pairs_hook=once, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_whole
)
