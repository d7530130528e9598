"""The result of one check: its name, its grade, what was seen, and the remedy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum

from aiperf.wording import counted
from nas.frozen import frozen
from nas.record import encode

GRADE_WIDTH, NAME_WIDTH = 12, 16
"""Widths of the first two columns of the text."""


class Grade(Enum):
    """How well something is, and whether that is known."""

    OK = "ok"
    WARNING = "warning"
    """A run would work, but slower or less reliably than it could."""
    FAILED = "failed"
    """A run would not start, or would not be valid."""
    NOT_CHECKED = "not checked"
    """Nothing is known about it: nothing could be examined, or no worker needs it."""


@frozen
class Check:
    """The result of one check. Every result but OK has a remedy; without evidence it may have none."""

    name: str
    outcome: Grade
    seen: str
    remedy: str = ""

    def __post_init__(self) -> None:
        if self.outcome is not Grade.NOT_CHECKED:
            assert bool(self.remedy) == (self.outcome is not Grade.OK), self


def ok(name: str, seen: str) -> Check:
    """A check that passed."""
    return Check(name, Grade.OK, seen)


def warning(name: str, seen: str, remedy: str) -> Check:
    """A check that a run survives, with what would make it better."""
    return Check(name, Grade.WARNING, seen, remedy)


def failed(name: str, seen: str, remedy: str) -> Check:
    """A check that would stop a run, with what to do."""
    return Check(name, Grade.FAILED, seen, remedy)


def not_checked(name: str, seen: str, remedy: str = "") -> Check:
    """A check about which nothing is known."""
    return Check(name, Grade.NOT_CHECKED, seen, remedy)


def checks_text(checks: Sequence[Check]) -> str:
    """One line per check, with the remedy below if one is needed, and a line with the totals."""
    lines = []
    for check in checks:
        lines.append(f"{check.outcome.value:<{GRADE_WIDTH}}{check.name:<{NAME_WIDTH}}{check.seen}")
        if check.remedy:
            lines.append(f"{'':<{GRADE_WIDTH + NAME_WIDTH}}remedy: {check.remedy}")
    return "\n".join([*lines, _totals(checks)])


def checks_json(checks: Sequence[Check]) -> str:
    """The checks as JSON, with the number of each grade."""
    outcomes = {outcome.value: _count(checks, outcome) for outcome in Grade}
    return json.dumps({"checks": encode(checks), "outcomes": outcomes}, indent=1, ensure_ascii=False)


def _totals(checks: Sequence[Check]) -> str:
    """The number of checks of each grade, and the names of those about which nothing is known."""
    numbers = [(_count(checks, outcome), outcome) for outcome in Grade]
    counts = ", ".join(
        counted(number, outcome.value) if outcome is Grade.WARNING else f"{number} {outcome.value}"
        for number, outcome in numbers
    )
    unknown = [check.name for check in checks if check.outcome is Grade.NOT_CHECKED]
    return f"{counts}{': ' * bool(unknown)}{', '.join(unknown)}"


def _count(checks: Sequence[Check], outcome: Grade) -> int:
    """Number of checks with this grade."""
    return sum(check.outcome is outcome for check in checks)
