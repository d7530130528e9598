"""Which fields of a journal's lines are hidden when they are written, and shown again when they are read.

Only these fields are changed, in both directions, so a private file cannot change anything else of a line.
All others are numbers, words of the program, hashes, versions, and names of devices, data sets and formats.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from aiperf.journal import events
from aiperf.journal.names import Names

FIELDS: Mapping[str, str] = {
    "host": "host",
    "pid": "process",
    "device_id": "device",
    "path": "path",
    "stage": "path",
    "command": "command",
    "settings": "settings",
    "run_id": "folder",
    "preset": "text",
    "seed_architecture": "text",
    "chosen": "text",
    "data_note": "text",
    "why_not": "text",
    "reason": "text",
    "traceback": "text",
}
"""What a field of this name holds, in any of `LINES` and at any depth."""
LINES = frozenset(
    kind.__name__
    for kind in (
        *(events.Opened, events.LegBegan, events.RankReady, events.RankAlike, events.CeilingMeasured),
        *(
            events.ControlMeasured,
            events.DeviceChecked,
            events.FabricMeasured,
            events.Began,
            events.FellBack,
            events.Ended,
            events.GroupLost,
            events.LegEnded,
        ),
    )
)
"""Kinds of line that have such fields."""
_FIRST_WORD = re.compile(r"[a-z]+(?:: |$)")
"""Beginning of the reason of a leg's end, which rules and scripts look for, so it is never hidden."""

Change = Callable[[str, Any], Any]
"""Gives the new value of a field by what it holds."""


def shown(record: dict[str, Any], names: Names) -> dict[str, Any]:
    """A line that was read, with the values of its commitments, as far as they are known."""

    def show(holds: str, value: Any) -> Any:
        if holds == "process":
            return names.number(value)
        if holds == "command":
            return [names.text(word) for word in value]
        if holds == "settings":
            return {name: names.text(text) for name, text in value.items()}
        return names.text(value)

    return changed(record, show)


def changed(record: dict[str, Any], change: Change) -> dict[str, Any]:
    """The line with each of `FIELDS` changed; of a leg's end, only the rest of its reason."""
    if record.get("type") not in LINES:
        return record
    reason = record.get("reason")
    if record["type"] == events.LegEnded.__name__ and isinstance(reason, str):
        first = found[0] if (found := _FIRST_WORD.match(reason)) else ""
        return {**record, "reason": first + change("text", reason[len(first) :])}
    changed: dict[str, Any] = _within(record, change)
    return changed


def _within(value: Any, change: Change) -> Any:
    if isinstance(value, dict):
        return {
            name: change(FIELDS[name], inner)
            if name in FIELDS and _holds(inner, FIELDS[name])
            else _within(inner, change)
            for name, inner in value.items()
        }
    return [_within(inner, change) for inner in value] if isinstance(value, list) else value


def _holds(value: object, kind: str) -> bool:
    """Whether a field has the type that it should have: a journal may be anybody's."""
    if kind == "process":
        return type(value) is int
    if kind == "settings":
        return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    if kind == "command":
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    return isinstance(value, str)
