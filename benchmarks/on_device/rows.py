"""What a part finds: rows of a figure beside what was expected, notes, and faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
Figures = dict[str, Any]
"""`rows`, `notes`, `smaller`, `faults`, `slow`, `left_out`, and whatever else the part measured."""


@dataclass(frozen=True)
class Use:
    """What the device used while a figure was measured; None is unknown."""

    watts: float | None = None
    hertz: float | None = None
    """Clock of its processors."""


UNKNOWN = Use()


def row(
    what: str,
    found: float | str | None,
    unit: str = "",
    expected: float | str | None = None,
    by: str = "",
    compared: bool = True,
    use: Use = UNKNOWN,
) -> Row:
    """One line of the page; None is unknown. `by` is the source of the expected value. There is a ratio if
    both are numbers that may be compared."""
    numbers = isinstance(found, int | float) and isinstance(expected, int | float) and compared
    ratio = float(found) / float(expected) if numbers and expected else None  # type: ignore[arg-type]
    figure = {"what": what, "found": found, "unit": unit, "expected": expected, "by": by, "ratio": ratio}
    return {**figure, "watts": use.watts, "hertz": use.hertz}


def figures(
    rows: list[Row],
    *,
    faults: list[str] | None = None,
    slow: list[str] | None = None,
    notes: list[str] | None = None,
    smaller: str = "",
    left_out: str = "",
    **more: object,
) -> Figures:
    """`faults` make the part a failed one; `slow` are findings that do not; `smaller` says what was reduced
    for a processor, `left_out` why nothing was measured. A part that gives them while it measures adds to its
    own lists of rows and faults."""
    return {
        "rows": rows,
        "faults": [] if faults is None else faults,
        "slow": slow or [],
        "notes": notes or [],
        "smaller": smaller,
        "left_out": left_out,
        **more,
    }
