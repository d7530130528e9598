"""Journals of version 1: an event copied what a group said, field by field, instead of embedding it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nas.record import RecordError

# By event: where the copied fields stand now, the class that is named there, and which fields these are.
# A value that is no member of a family names no class.
EMBEDDED: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "Began": ("started", "Started", ("trial", "attempt", "graph_key", "prepare_seconds")),
    "Stepped": ("block", "", ("trial", "attempt", "segment", "steps", "images", "seconds", "loss")),
    "Ended": (
        "finished",
        "Finished",
        ("trial", "attempt", "state", "reason", "traceback", "weights", "out_of_memory"),
    ),
    "Tested": ("evaluated", "Evaluated", ("trial", "correct", "of", "seconds")),
}


def upgraded(record: dict[str, Any]) -> dict[str, Any]:
    """The same event as a line of today has it. Raises RecordError for what version 1 did not have."""
    name = record.get("type")
    if not isinstance(name, str) or name not in EMBEDDED:
        return record
    place, kind, fields = EMBEDDED[name]
    if place in record:  # it would be written over, and so hidden
        raise RecordError(f"unknown key {place}")
    said = {field: record.pop(field) for field in fields if field in record}
    return {**record, place: {**({"type": kind} if kind else {}), **said}}
