"""Time that a group reserves for its closing validation before a deadline.

The groups decide by this formula, and a rule judges them by it. The journal has all that it needs: the
operations of the networks, and how long recent validations of the group took. It was fitted to 3,203
validations of 54 runs on busy hosts (docs/score.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CLOSING_SHARE = 1.25
"""Reserved time as a multiple of the longest of the recent validations."""
RECENT = 8
"""Number of recent validations of the group: as many as show how much they differ on a busy host."""
MOST_SCALING = 2.0
"""Largest factor between networks of different sizes. A validation has costs that do not grow with its
network, so one of a much smaller network is no measure of this one."""


@dataclass(frozen=True)
class TimedValidation:
    """A validation of the group."""

    operations: int
    """OPS of one validated example."""
    seconds: float


def reserved_seconds(recent: Sequence[TimedValidation], operations: int) -> float:
    """Time in seconds for the validation of a network with so many OPS per example, after these validations,
    of which the last ones count; 0 without any."""
    return CLOSING_SHARE * max(
        (each.seconds * _scaling(each, operations) for each in recent[-RECENT:]), default=0.0
    )


def _scaling(validated: TimedValidation, operations: int) -> float:
    if not (validated.operations and operations):
        return 1.0
    return min(max(operations / validated.operations, 1 / MOST_SCALING), MOST_SCALING)
