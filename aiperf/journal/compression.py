"""Compression of the `RankReady` lines of a leg: a rank's line states how it differs from an earlier one.

The ranks of a machine have their software, data and most settings in common, which are most of a `Ready`, so
the journal of a large run stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from aiperf.clock import duration, moment
from aiperf.journal.events import RankAlike, RankReady
from aiperf.wire.clocks import ClockReading
from aiperf.wire.reports import Ready
from nas.record import RecordError, decode_fields, encode

FIELDS = tuple(field.name for field in fields(Ready))


def shortest_line(
    other: Ready | None, group: int, ready: Ready, clock: ClockReading
) -> RankReady | RankAlike:
    """The shortest line for a rank that is ready, given one that was ready before it in its leg."""
    offset, uncertainty = moment(clock.offset_seconds), duration(clock.uncertainty_seconds)
    if other is None:
        return RankReady(group, ready, offset, uncertainty)
    differs, within = {}, {}
    for name in FIELDS:
        now, was = getattr(ready, name), getattr(other, name)
        if _same(now, was):
            continue
        if isinstance(now, Mapping) and isinstance(was, Mapping) and was.keys() <= now.keys():
            within[name] = {
                key: value for key, value in now.items() if key not in was or not _same(value, was[key])
            }
        else:
            differs[name] = encode(now)
    return RankAlike(group, other.rank, differs, within, offset, uncertainty)


def whole_line(other: Ready | None, event: RankAlike) -> RankReady:
    """The `RankReady` that the line stands for; `other` is the rank that it names, None if there is none.
    Mappings that equal those of the other rank are shared with it. Raises RecordError if there is no other
    rank, or a field is none of a `Ready`."""
    if other is None:
        raise RecordError(f"is like rank {event.like}, which was not ready in this leg")
    merged: dict[str, Any] = {}
    for name, entries in event.within.items():
        was = getattr(other, name) if name in FIELDS else None
        if name in event.differs or not isinstance(was, Mapping):
            raise RecordError(f"within {name!r:.80}, which is not a mapping of rank {event.like}")
        merged[name] = {**was, **entries}
    return RankReady(
        event.group,
        replace(other, **decode_fields(Ready, {**event.differs, **merged}, "differs")),
        event.clock_offset_seconds,
        event.clock_uncertainty_seconds,
    )


def _same(now: object, was: object) -> bool:
    """Whether two values are written alike in a journal: 1 and True are equal in Python, but not in JSON."""
    return now == was and repr(now) == repr(was)
