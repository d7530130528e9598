"""Figures in words, as they are shown to users: rates, fractions, times and names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import groupby

_PREFIXES = (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))

COUNTABLE = 1e15
"""Figures from here on are written with an exponent: a journal may contain any number, and none may fill a
page."""

FEW = 5
"""Maximum number of faults of one kind that are named: a damaged disk has many, and they must fit into a
line."""

SMALLEST_PERCENT = 1e-6
"""Smaller percentages are written as a power of ten, because many zeros are hard to count."""

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
"""Digits of an exponent."""

_TURNING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, characters that change the direction of text (Unicode, UAX #9), and unpaired
surrogates, which cannot be encoded as UTF-8."""


_ADVICE = ("Set TORCH", "For even more developer context", "You can suppress this")
"""How lines begin that torch adds to what a compiler raised."""


def gist(message: str) -> str:
    """One line of a message: its first, and its last if the first only announces more. So begin Triton's
    errors, with a place in a kernel whose lines follow, and torch's of what its compilers raised or NCCL."""
    lines = [line.strip() for line in message.splitlines() if not line.startswith(_ADVICE)]
    first, *more = list(filter(None, lines)) or [""]
    announces = first.endswith(":") or "NCCL error in: " in first
    return f"{first} {more[-1]}" if more and announces else first


def scaled(value: float, unit: str, digits: int = 4) -> str:
    """The value with the SI prefix that leaves one to three digits before the point: 12.31 GOPS."""
    for prefix, size in _PREFIXES:
        if abs(value) >= size:
            return f"{value / size:#.{digits}g}".rstrip(".") + f" {prefix}{unit}"
    return f"{value:.{digits}g} {unit}"


def figure(value: float) -> str:
    """The value with four significant digits or as a whole number with thousands separated; very large and
    very small ones have an exponent."""
    return f"{value:,.0f}" if 1000 <= abs(value) < COUNTABLE else f"{value:.4g}"


def rate(ops_per_second: float) -> str:
    return scaled(ops_per_second, "OPS")


def rates(low: float, high: float) -> str:
    """A range of rates; the unit is written once if both have the same."""
    first, last = rate(low), rate(high)
    number, _, unit = first.partition(" ")
    return f"{number if last.endswith(f' {unit}') else first} to {last}"


def percent(share: float | None, digits: int = 2) -> str:
    """A fraction in percent with `digits` decimals, "41.2 %", and at least two significant digits, "0.018
    %"."""
    return "unknown" if share is None else f"{hundredths(share, digits)} %"


def hundredths(share: float, digits: int = 2) -> str:
    """A fraction in percent, without the sign."""
    value = 100 * share
    if abs(share) >= COUNTABLE:
        return f"{value:.4g}"
    if 0 < abs(value) < SMALLEST_PERCENT:
        mantissa, _, power = f"{value:.1e}".partition("e")
        return f"{mantissa} × 10{str(int(power)).translate(_RAISED)}"
    exponent = int(f"{value:.1e}".partition("e")[2])  # of the rounded number: 0.9999 is 1.0
    return f"{value:.{max(digits, 1 - exponent if value else 0)}f}"


def clock(seconds: float) -> str:
    """A duration as minutes and seconds, 1:05, or with hours, 2:00:05."""
    if seconds >= COUNTABLE:
        return f"{seconds:.4g} s"
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def duration(seconds: float) -> str:
    """A duration in words, "32 minutes", for sentences, in which 1:00 could mean an hour or a minute."""
    seconds = float(f"{seconds:.3g}")
    number, unit = next(
        ((seconds / size, unit) for size, unit in ((3600, "hour"), (60, "minute")) if seconds >= 2 * size),
        (seconds, "second"),
    )
    text = figure(float(f"{number:.3g}"))
    return f"{text} {unit}{'s' * (text != '1')}"


def kilowatt_hours(joules: float) -> str:
    return f"{figure(joules / 3.6e6)} kWh"


def moment(iso: str) -> str:
    """A time of day in ISO 8601 as "4 May 2026, 08:00 UTC"; any other text is returned unchanged."""
    try:
        time = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    zone = " UTC" if time.utcoffset() == timedelta(0) else ""
    return f"{time.day} {time:%B %Y, %H:%M}{zone}"


def bytes_text(value: float) -> str:
    """A number of bytes with a prefix for powers of 1,024."""
    for prefix in ("", "Ki", "Mi", "Gi", "Ti"):
        if value < 1024 or prefix == "Ti":
            break
        value /= 1024
    return f"{value:.4g} {prefix}B"


def suggestion(name: str, known: Iterable[str]) -> str:
    """ "; did you mean 'digits'?" for the known name that is closest; empty if none is close. Of dotted names
    the last words are compared first: 'batchsize' is nearer to training.batch_size than to data.size."""
    from difflib import get_close_matches  # only a wrong name needs it

    words = {each: each.rpartition(".")[2] for each in known}
    word = get_close_matches(name.rpartition(".")[2], list(dict.fromkeys(words.values())), n=1)
    close = get_close_matches(name, [each for each in words if words[each] in word], n=1, cutoff=0)
    return f"; did you mean {close[0]!r}?" if close else ""


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 leg", "2,000 legs"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def in_a_row(values: Iterable[object]) -> str:
    """ "6, 14 times 3, 120": equal ones in a row are counted."""
    rows = [(value, len(list(same))) for value, same in groupby(values)]
    return ", ".join(f"{times} times {value}" if times > 1 else str(value) for value, times in rows)


def first_few(faults: Sequence[str]) -> str:
    """The first faults in one line; beyond `FEW` they are only counted."""
    more = f" … and {len(faults) - FEW} more" if len(faults) > FEW else ""
    return "; ".join(faults[:FEW]) + more


def plain(text: str) -> str:
    """The text in one line, without characters that move a terminal's cursor or change the direction of text,
    because names may come from elsewhere."""
    return _TURNING.sub(lambda found: " " if found.group().isspace() else "\ufffd", text)


@cache
def spoken(name: str) -> str:
    """The name of a class in words: "widen trunk"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z0-9])", " ", name).lower()


def harmless(text: str) -> str:
    """The text as one line that no spreadsheet reads as a formula (OWASP, "CSV Injection")."""
    text = plain(text)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
