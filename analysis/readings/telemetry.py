"""What the hosts measured during a run, if they did: telemetry/<host>.jsonl of the run directory.

A line is a JSON object with `wall_seconds`, the host's time of day in seconds since 1970, and any numbers;
objects inside it (of a device, of a sensor) are flattened by name, and equal names of several devices
are averaged. A name includes its unit: `power_watts`, `utilisation`, `memory_bytes`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.attempts import Leg
from aiperf.journal.axis import SpanAxis
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.journal.strict import once
from nas.bounded import lines, opened
from nas.frozen import frozen

BINS = 240
"""Most bins: a figure is some hundreds of pixels wide."""
LEAST_BIN_SECONDS = 2.0
"""Shortest bin. Hosts measure once per second: a shorter bin may be empty, and no line is drawn through
it."""
MOST_QUANTITIES = 24
"""Most quantities that are kept: a file may hold any number of names."""
COUNTER = "energy_joules"
"""A counter since the driver was loaded: its rise over the span tells something, its curve does not."""
TIME = "wall_seconds"
NAME = re.compile(r"[a-z][a-z0-9_.]{0,60}")
"""Names that are shown; others may be made to harm a page."""
LONGEST_LINE = 1 << 20
"""Longest line in bytes; that of a host with sixteen devices has a hundredth of it."""
MOST_PIECES = 64
"""Number of pieces of one line that are skipped; what follows more of them is not read."""


@frozen
class Quantity:
    """One measured quantity over the span, in bins; not a number in bins in which no host measured."""

    name: str
    lowest: NDArray[np.float64]
    """Lowest of the hosts' means in each bin; next, their median and the highest."""
    median: NDArray[np.float64]
    highest: NDArray[np.float64]


@frozen
class Telemetry:
    """What all hosts measured over the span."""

    hosts: int
    """Number of hosts that measured."""
    edges: NDArray[np.float64]
    """Edges of the bins, in seconds of the span."""
    quantities: tuple[Quantity, ...]
    unread: int
    """Number of lines that are not a measurement."""


def read_telemetry(files: RunFiles, replay: Replay) -> Telemetry | None:
    """None where nothing was measured within the span."""
    paths = sorted(files.telemetry_directory.glob("*.jsonl"))
    span = replay.span_seconds
    if not paths or span <= 0:
        return None
    bins = max(1, min(BINS, int(span / LEAST_BIN_SECONDS)))
    sums: dict[str, dict[int, NDArray[np.float64]]] = {}
    unread = 0
    hosts = {
        files.telemetry(event.ready.host): event.ready.host for leg in replay.legs for event in leg.ranks
    }
    for host, path in enumerate(paths):
        clock = HostClock(replay, hosts.get(path, path.stem))
        for record in records(path):
            at = None if record is None else clock.span_seconds(record.pop(TIME, None))
            unread += record is None
            if record is None or at is None:
                continue
            place = min(bins - 1, int(at / span * bins))
            for name, value in _numbers(record):
                if name.endswith((COUNTER, TIME)):
                    continue
                if name in sums or len(sums) < MOST_QUANTITIES:
                    cell = sums.setdefault(name, {}).setdefault(host, np.zeros((2, bins)))
                    cell[0, place] += value
                    cell[1, place] += 1
    if not sums:
        return None
    quantities = tuple(_quantity(name, by_host) for name, by_host in sorted(sums.items()))
    return Telemetry(len(paths), np.linspace(0.0, span, bins + 1), quantities, unread)


class HostClock:
    """Converts a host's time of day to seconds of the span. The legs' starts are by the master's clock; the
    offset of the host's clock was measured once, when its ranks became ready."""

    def __init__(self, replay: Replay, host: str, until: float = math.inf) -> None:
        """`until` is the second of the span after which nothing is read."""
        self._axis, self._legs = SpanAxis(replay.legs), list[tuple[float, float, float, Leg]]()
        self._spans: dict[str, list[tuple[float, float]]] = {}
        self.leg_spans: dict[int, tuple[float, float]] = {}
        """The begin and the end of the span of each leg, by its index, in the host's time of day; infinite if
        the leg has no time of day. For a name that no host has, by the master's clock."""
        for leg in replay.legs:
            left = until - float(self._axis.begins[leg.index])
            if leg.released is None or left <= 0:
                continue
            own = [event for event in leg.ranks if event.ready.host == host]
            span = -math.inf, math.inf
            try:
                began = datetime.fromisoformat(leg.began.started).timestamp()
            except ValueError:  # no time of day: nothing can be placed in this leg, nor summed over it
                pass
            else:
                began += own[0].clock_offset_seconds if own else 0.0
                span = began + leg.released, began + min(leg.end, leg.released + left)
                self._legs.append((*span, began, leg))
            self.leg_spans[leg.index] = span
            for device in {event.ready.device_id for event in own}:
                self._spans.setdefault(device, []).append(span)

    def spans(self, device: str) -> list[tuple[float, float]]:
        """The begin and the end of the span of each leg in which a rank had this device of the host, in the
        host's time of day."""
        return self._spans.get(device, [])

    def span_seconds(self, wall: object) -> float | None:
        """Seconds of the span at a time of day of the host; None outside of every leg."""
        if not isinstance(wall, (int, float)):
            return None
        for first, last, began, leg in self._legs:
            if first <= wall <= last:
                return self._axis.at(leg, wall - began)
        return None


def records(path: Path, having: bytes = b"") -> Iterator[dict[str, Any] | None]:
    """Each line's object; None for a line that is not one. A last line without an end is still being written,
    and is left out. Lines without the bytes `having` are not parsed, which is what takes the time."""
    try:
        with opened(path) as file:
            pieces = 0
            for raw in lines(file, LONGEST_LINE):
                # The pieces of a line that is too long are skipped, and its end is reported as no record.
                if raw.endswith(b"\n"):
                    if pieces or having in raw:
                        yield _record(raw) if pieces == 0 else None
                    pieces = 0
                elif (pieces := pieces + 1) > MOST_PIECES:  # a file with a hole, whose end is never reached
                    yield None
                    return
    except OSError:  # as if there were none: a report is made of what can be read
        yield None


def _record(raw: bytes) -> dict[str, Any] | None:
    """The object in a line; None if it is not JSON, or not an object."""
    try:
        record = json.loads(raw, object_pairs_hook=once)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _numbers(record: Mapping[str, Any] | list[Any], path: str = "") -> Iterator[tuple[str, float]]:
    """Numbers by dotted name. A list holds devices, whose numbers share their names."""
    items = (
        ((path, item) for item in record)
        if isinstance(record, list)
        else ((f"{path}.{name}" if path else str(name), item) for name, item in record.items())
    )
    for name, item in items:
        if isinstance(item, (dict, list)) and name.count(".") < 4:
            yield from _numbers(item, name)
        elif isinstance(item, (int, float)) and not isinstance(item, bool) and NAME.fullmatch(name):
            value = float(item) if abs(item) < 1e30 else math.nan
            if math.isfinite(value):
                yield name, value


def _quantity(name: str, by_host: Mapping[int, NDArray[np.float64]]) -> Quantity:
    """The range of the hosts' means in each bin; a bin in which no host measured stays not a number."""
    cells = np.array(list(by_host.values()))
    means = np.full(cells[:, 0].shape, np.nan)
    np.divide(cells[:, 0], cells[:, 1], out=means, where=cells[:, 1] > 0)
    there = np.isfinite(means).any(axis=0)
    found = np.full((3, len(there)), np.nan)
    found[:, there] = [sums(means[:, there], axis=0) for sums in (np.nanmin, np.nanmedian, np.nanmax)]
    return Quantity(name, *found)
