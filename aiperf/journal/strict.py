"""JSON that all readers understand alike: no key twice, and only finite numbers that fit into 64 bits."""

from __future__ import annotations

import json
from typing import Any

LARGEST = (1 << 63) - 1
"""Largest whole number, because numbers are read into columns of int64."""
LARGEST_FLOAT = 1e150
"""Largest number, far above any that can be measured, so that no product of two, and no sum, is infinite."""
FEW_DIGITS = 18
"""Number of digits up to which no whole number is too large, so that most numbers need no comparison."""


def parsed(raw: bytes) -> Any:
    """The value that the JSON text states. Raises ValueError if it is not such JSON, RecursionError if it is
    nested too deeply."""
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
    """The pairs as a dict. Raises ValueError for a key that appears twice: another reader may use the other
    value, and judge the same journal differently."""
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice:.40} appears twice")
    return record


_DECODER = json.JSONDecoder(
    object_pairs_hook=once,
    parse_constant=_refuse_constant,
    parse_float=_finite,
    parse_int=_whole,
)
