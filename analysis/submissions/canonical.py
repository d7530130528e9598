"""The one form in which results, manifests and descriptions are written: equal values are equal bytes."""

from __future__ import annotations

import json
import math
from typing import Any

from aiperf.errors import AiperfError
from aiperf.journal.strict import once


class CanonicalError(AiperfError, ValueError):
    """The text is not JSON, or not in the canonical form."""


def canonical(value: Any) -> bytes:
    """JSON in UTF-8 with sorted keys, no spaces, the shortest text of each number, and a line end.

    Raises CanonicalError for numbers that JSON does not have.
    """
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode() + b"\n"
    except ValueError as error:
        raise CanonicalError(f"this cannot be written as JSON: {error}") from None


def parse(data: bytes) -> Any:
    """What `canonical` wrote. Raises CanonicalError for anything else, however alike it is in meaning."""
    try:
        value = json.loads(data, object_pairs_hook=once, parse_float=_finite, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise CanonicalError(f"not valid JSON: {error}") from None
    if canonical(value) != data:
        raise CanonicalError("it is JSON, but not in the form that this program writes")
    return value


def _finite(text: str) -> float:
    """A float of JSON; one that overflows to infinity is refused."""
    value = float(text)
    if not math.isfinite(value):
        raise CanonicalError(f"{text:.20} is too large a number")
    return value


def _refused(text: str) -> float:
    """NaN and Infinity, which Python reads and JSON does not have."""
    raise CanonicalError(f"{text} is not a JSON number")
