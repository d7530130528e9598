"""The power that a site's own meters measured: a CSV file, read as if a stranger had written it.

Its first line names the columns, in any order: `time`, one of `watts` and `joules`, and `node` if there are
several meters. Other columns are ignored. `time` is UTC, in ISO 8601 or in seconds since 1970. `joules` is a
counter that only rises. An empty value is a sample that is missing.
"""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import BinaryIO

import numpy as np

from aiperf.errors import AiperfError
from aiperf.os_error import unreadable
from analysis.readings.usage import Samples, measures
from nas.bounded import lines, opened
from nas.frozen import frozen

TIME, NODE, WATTS, JOULES = "time", "node", "watts", "joules"
FORM = "give a CSV file with the columns time,watts or time,node,watts (joules: a counter, in place of watts)"
LONGEST_LINE = 4 << 10
"""Longest line in bytes; one with a name, a time and a number has a hundredth of it."""
MOST_SAMPLES = 4_000_000
"""Most samples within the span: one per second of 1,000 nodes for an hour."""
MOST_SECONDS = 1e11
"""Latest time: a later one is in milliseconds."""
LONGEST_GAP_SECONDS = 60.0
"""Longest time between two samples of a meter over which it is believed: what a distribution unit of a rack
records at the least."""


class PowerFileError(AiperfError):
    """The file is not a record of power. Names the file and the line."""


@frozen
class PowerFile:
    """The samples of each meter, in the order of time."""

    quantity: str
    """`watts`, or `joules` for a counter."""
    meters: Mapping[str, Samples]
    """Times of day in seconds since 1970, and values; by the name of the node, or of whatever a meter
    measures. One meter without a name is for all together."""


def read_power(path: Path, spans: Sequence[tuple[float, float]]) -> PowerFile:
    """The samples within the spans, and up to the longest gap around them. Raises PowerFileError."""
    try:
        with opened(path) as file:
            return _read(path, csv.reader(_text(path, file)), spans)
    except OSError as error:
        raise PowerFileError(unreadable(error, path, FORM)) from None
    except csv.Error as error:
        raise PowerFileError(f"{path} is not CSV: {error}; {FORM}") from None


def power_text(power: PowerFile, name: Callable[[str], str]) -> str:
    """The file as it is kept next to a journal and published, with the names that `name` gives."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    named = [NODE] if any(power.meters) else []
    writer.writerow([*named, TIME, power.quantity])
    for meter, (times, values) in sorted((name(meter), power.meters[meter]) for meter in power.meters):
        for at, value in zip(times.tolist(), values.tolist()):
            writer.writerow([*([meter] if named else []), f"{at:.3f}", f"{value:.6f}"])
    return out.getvalue()


def _text(path: Path, file: BinaryIO) -> Iterator[str]:
    """The lines of the file as text. They are decoded one by one, so that a fault has the number of its
    line."""
    for number, raw in enumerate(lines(file, LONGEST_LINE), 1):
        if len(raw) > LONGEST_LINE:
            raise PowerFileError(f"{path}, line {number} has more than {LONGEST_LINE:,} bytes; {FORM}")
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise PowerFileError(f"{path}, line {number} is not valid UTF-8; {FORM}") from None


def _read(path: Path, rows: Iterator[list[str]], spans: Sequence[tuple[float, float]]) -> PowerFile:
    """The samples near the spans. What is far from them is not kept: a site's file may hold years."""
    heads = [head.strip().lower() for head in next(rows, [])]
    quantity = [name for name in (WATTS, JOULES) if name in heads]
    if TIME not in heads or len(quantity) != 1 or len(set(heads)) < len(heads):
        raise PowerFileError(f"{path}, line 1 has the columns {','.join(heads)!r:.80}; {FORM}")
    places = [heads.index(TIME), heads.index(quantity[0])]
    node = heads.index(NODE) if NODE in heads else None
    near = [(first - LONGEST_GAP_SECONDS, last + LONGEST_GAP_SECONDS) for first, last in spans]
    found: dict[str, tuple[array[float], array[float]]] = {}
    kept = 0
    for number, row in enumerate(rows, 2):
        if not row:
            continue
        if len(row) != len(heads):
            raise PowerFileError(
                f"{path}, line {number} has {len(row)} values and the first line {len(heads)}; {FORM}"
            )
        at = _moment(row[places[0]].strip())
        value = _number(row[places[1]].strip())
        if at is None or value is None:
            wrong = row[places[0 if at is None else 1]]
            what = f"{quantity[0]}, 0 or more" if at is not None else "a time, such as 2026-05-04T08:00:00Z"
            raise PowerFileError(f"{path}, line {number} has {wrong!r:.40}, which is not {what}")
        if value < 0 or not any(first <= at <= last for first, last in near):
            continue
        kept += 1
        if kept > MOST_SAMPLES:
            raise PowerFileError(
                f"{path} has more than {MOST_SAMPLES:,} samples within the span; give fewer per minute"
            )
        times, values = found.setdefault("" if node is None else row[node].strip(), (array("d"), array("d")))
        times.append(at)
        values.append(value)
    return PowerFile(quantity[0], {name: _ordered(path, name, *each) for name, each in sorted(found.items())})


def _ordered(path: Path, name: str, times: array[float], values: array[float]) -> Samples:
    """The samples in the order of time; two at one time are refused, because they may be of two meters."""
    at, value = np.array(times), np.array(values)
    order = np.argsort(at, kind="stable")
    at, value = at[order], value[order]
    if (twice := np.flatnonzero(np.diff(at) <= 0)).size:
        when = datetime.fromtimestamp(float(at[twice[0]]), timezone.utc).isoformat(timespec="seconds")
        of = f" of {name!r:.40}" if name else ""
        raise PowerFileError(
            f"{path} has two samples{of} at {when}; name each meter in a column node, or remove one"
        )
    return at, value


def _moment(text: str) -> float | None:
    """Seconds since 1970; None for what is not a time."""
    try:
        at = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text.upper().replace("Z", "+00:00"))
            at = (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
        except (ValueError, OverflowError):
            return None
    return at if 0 <= at <= MOST_SECONDS else None


def _number(text: str) -> float | None:
    """A value; −1 for a missing one, and None for what is not a number of this kind."""
    if not text:
        return -1.0
    try:
        value = float(text)
    except ValueError:
        return None
    return value if measures(value) else None
