"""OUT/device.txt: one page for whoever buys or accepts a machine."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from itertools import dropwhile
from typing import Any

from aiperf.wording import figure, gist, scaled
from benchmarks.on_device.parts import PARTS, Part
from benchmarks.on_device.state import DONE, FAILED, UNFINISHED, Measured

WIDTH = 120
WHAT, FOUND, EXPECTED, RATIO, WATTS, CLOCK = 34, 16, 16, 6, 8, 9
BY = WIDTH - WHAT - FOUND - EXPECTED - RATIO - WATTS - CLOCK - 7
MEGA = 1e6
PREFIXED = ("OPS", "B/s", "B", "W", "Hz")
COUNTED_BYTES = "GiB"
FRAME = '  File "'
"""How a line of a traceback begins, after the last of which stands what was raised."""


def page(measured: Measured) -> str:
    """The whole text, at most WIDTH columns wide."""
    return "\n".join(line.rstrip() for line in _lines(measured)) + "\n"


def _lines(measured: Measured) -> Iterator[str]:
    """The page, line by line: what is wrong, what is slow, the device, which parts are done, then each
    part."""
    yield "aiperf-hpc on a device"
    yield "=" * WIDTH
    for title, word in (("WRONG", "faults"), ("SLOW", "slow")):
        yield from _found(title, measured, word)
    for name, text in measured.identity.items():
        yield from _named(name, text)
    yield from _summary(measured)
    for part in PARTS:
        if (found := measured.parts.get(part.name)) is not None:
            yield ""
            yield from _part(part, found)


def _found(title: str, measured: Measured, word: str) -> Iterator[str]:
    """The faults of all parts, or what is slow in them, one by one, and why a part was ended."""
    lines = []
    for part in PARTS:
        found = measured.parts.get(part.name, {})
        lines += [f"{part.name}: {each}" for each in (found.get("figures") or {}).get(word, [])]
        if word == "faults" and found.get("error"):
            lines.append(f"{part.name}: {reason(found['error'])}")
    yield f"{title}{'' if lines else ': nothing so far'}"
    for line in lines:
        yield from textwrap.wrap(f"- {line}", WIDTH, subsequent_indent="  ")
    yield ""


def _summary(measured: Measured) -> Iterator[str]:
    """Which parts are in which state."""
    states = {part.name: measured.state(part.name) for part in PARTS}
    figures = {name: part["figures"] or {} for name, part in measured.parts.items()}
    left_out = [name for name in states if figures.get(name, {}).get("left_out")]
    named = {
        "done": [name for name, state in states.items() if state == DONE and name not in left_out],
        "left out": left_out,
        "failed": [name for name, state in states.items() if state == FAILED],
        "to do": [name for name, state in states.items() if state in ("", UNFINISHED)],
    }
    for title, names in named.items():
        yield from _named(title, ", ".join(names) or "none")


def _named(name: str, text: str) -> Iterator[str]:
    """A name with its text, wrapped under the text."""
    yield from textwrap.wrap(f"{name:<12}{text}", WIDTH, subsequent_indent=" " * 12, break_on_hyphens=False)


def _part(part: Part, found: Mapping[str, Any]) -> Iterator[str]:
    """A part: its state, its rows, what was smaller, notes and faults."""
    figures = found.get("figures") or {}
    state = "left out" if figures.get("left_out") else found["state"]
    title = f"{part.title} [{part.name}]"
    end = f"{state}, {found['seconds']:.0f} s, {found['began']}"
    yield f"{title}{end:>{WIDTH - len(title)}}"
    yield "-" * WIDTH
    rows = figures.get("rows", [])
    if any(row["expected"] is not None for row in rows):
        yield _columns("", "found", "expected", "ratio", "power", "clock", "by")
    elif any(_use(row) != ("", "") for row in rows):
        yield _columns("", "found", "", "", "power", "clock", "")
    for row in rows:
        yield from _row(row)
    for word, mark in (("smaller", "smaller here: "), ("left_out", "left out: ")):
        if figures.get(word):
            yield from _wrapped(mark + figures[word])
    for text in figures.get("slow", []):
        yield from _wrapped(f"slow: {text}")
    for note in figures.get("notes", []):
        yield from _wrapped(note)
    for fault in figures.get("faults", []):
        yield from _wrapped(f"FAILED: {fault}")
    if found.get("error"):
        yield from _wrapped(f"{'FAILED: ' if state == FAILED else ''}{reason(found['error'])}")
    if found.get("error") and rows:
        yield "cut off: the rows above are what it had found until then"


def reason(error: str) -> str:
    """One line of an error, the whole of which stands in the JSON: how the process ended, and what it raised
    or, without a traceback, wrote last. Torch's errors of a device end with the same advice."""
    ended, *rest = error.strip().splitlines()
    frames = [number for number, line in enumerate(rest) if line.startswith(FRAME)]
    if frames:
        raised = dropwhile(lambda line: not line[:1].strip(), rest[frames[-1] + 1 :])
        rest = [gist("\n".join(raised))]
    return ": ".join([ended, *rest[-1:]])


def _row(row: Mapping[str, Any]) -> Iterator[str]:
    """A row in columns; one that does not fit is a name with a text."""
    found, expected = shown(row["found"], row["unit"]), shown(row["expected"], row["unit"])
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.3f}"
    if row["expected"] is None and len(found) > FOUND:  # a text has the rest of the line
        yield from _labelled(row["what"], found)
        return
    what, *rest = textwrap.wrap(row["what"], WHAT) or [""]
    if len(found) > FOUND or len(expected) > EXPECTED:
        yield from _labelled(row["what"], f"{found}; expected: {expected} {row['by']}".rstrip())
        return
    by = "" if row["expected"] is None else _cut(row["by"])
    yield _columns(what, found, "" if row["expected"] is None else expected, ratio, *_use(row), by)
    yield from (f"  {line}" for line in rest)


def _use(row: Mapping[str, Any]) -> tuple[str, str]:
    """Power and clock of a row; empty where they are unknown."""
    watts, hertz = row["watts"], row["hertz"]
    return (
        "" if watts is None else f"{watts:,.0f} W",
        "" if hertz is None else f"{hertz / MEGA:,.0f} MHz",
    )


def _cut(text: str) -> str:
    """The source of an expected value, cut to its column."""
    return text if len(text) <= BY else f"{text[: BY - 1]}…"


def _columns(what: str, found: str, expected: str, ratio: str, watts: str, clock: str, by: str) -> str:
    """One line of the table."""
    figures = f"{found:>{FOUND}} {expected:>{EXPECTED}} {ratio:>{RATIO}} {watts:>{WATTS}} {clock:>{CLOCK}}"
    return f"{what:<{WHAT}} {figures}  {by}"[:WIDTH]


def _labelled(what: str, text: str) -> Iterator[str]:
    """A name and a text side by side, each wrapped in its column."""
    head, *rest = textwrap.wrap(what, WHAT)
    lines = textwrap.wrap(text, WIDTH - WHAT - 1) or [""]
    yield f"{head:<{WHAT}} {lines[0]}"
    for index in range(max(len(rest), len(lines) - 1)):
        left = f"  {rest[index]}" if index < len(rest) else ""
        yield f"{left:<{WHAT}} {lines[index + 1] if index + 1 < len(lines) else ''}"


def _wrapped(text: str) -> Iterator[str]:
    """A text over the whole width."""
    yield from textwrap.wrap(text, WIDTH, subsequent_indent="  ")


def shown(value: float | str | None, unit: str) -> str:
    """A figure with its unit; None is unknown."""
    if value is None:
        return "unknown"
    if isinstance(value, str):
        return value
    if unit == COUNTED_BYTES:
        return f"{value / 2**30:,.3f} GiB"
    if unit == "%":
        return f"{100 * value:.1f} %"
    if unit in PREFIXED:
        return scaled(value, unit)
    if isinstance(value, int):
        return f"{value:,} {unit}".rstrip()
    return f"{figure(value)} {unit}".rstrip()
