"""Lines of older journals and logs, as a line of today says the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiperf.tally import Classified
from nas.record import RecordError

# Up to version 1 an event copied what a group said, field by field, instead of embedding it. By event: where
# the fields stand now, the class that is named there, and which fields these are. A value outside a family
# names no class.
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
# Up to version 2 all tasks were of images. By event: what holds the answers, which are a tally now.
ANSWERED: Mapping[str, str] = {"Closed": "segment", "Tested": "evaluated"}
# Up to version 3 an example of any task was called an image. By event: where the keys stand that named one.
NAMED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "Opened": (("config", "data"), ("config", "training")),
    "RankReady": (("ready", "data"),),
    "RankAlike": (("within", "data"), ("differs", "data")),
    "ControlMeasured": (("control",),),
    "Stepped": (("block",),),
    "Closed": (("segment",),),
}


def upgraded(record: dict[str, Any], version: object) -> dict[str, Any]:
    """The same event. Raises RecordError for what that version did not have."""
    name = record.get("type")
    if not isinstance(name, str):
        return record
    if version == 1 and name in EMBEDDED:
        record = _embedded(record, *EMBEDDED[name])
    if version in (1, 2) and name in ANSWERED:
        _tally(record.get(ANSWERED[name]))
    if version in (1, 2, 3):
        for path in NAMED.get(name, ()):
            _renamed(_at(record, path))
    return record


def upgraded_log(record: dict[str, int]) -> dict[str, int]:
    """A line of a rank's log, whose journal may be of any version."""
    if "examples" in record:
        return record
    return {"examples" if name == "images" else name: value for name, value in record.items()}


def _embedded(record: dict[str, Any], place: str, kind: str, fields: tuple[str, ...]) -> dict[str, Any]:
    _refuse(place, record)
    said = {field: record.pop(field) for field in fields if field in record}
    return {**record, place: {**({"type": kind} if kind else {}), **said}}


def _tally(holder: Any) -> None:
    """In place: a long run has a million of them."""
    if isinstance(holder, dict):
        _refuse("tally", holder)
        answers = {name: holder.pop(name) for name in ("correct", "of") if name in holder}
        holder["tally"] = {"type": Classified.__name__, **answers}


def _at(record: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        record = record.get(name) if isinstance(record, dict) else None
    return record


def _renamed(holder: Any) -> None:
    """In place, as above."""
    if isinstance(holder, dict):
        for old in [name for name in holder if "images" in name]:
            new = old.replace("images_a_class", "images_per_class").replace("images", "examples")
            _refuse(new, holder)
            holder[new] = holder.pop(old)


def _refuse(name: str, record: dict[str, Any]) -> None:
    """A key that the version did not have would be written over, and so hidden."""
    if name in record:
        raise RecordError(f"unknown key {name}")
