"""A snapshot as plain text for a terminal: a few lines, then a line a group."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.journal.mark import marked
from aiperf.wording import clock, figure, percent, plain, rate
from analysis.readings.hosts import GroupNow
from analysis.readings.live import Snapshot

BLOCKS = "▁▂▃▄▅▆▇█"
"""Bars from the lowest to the highest."""
SLOW_SHOWN = 3
"""Most slow ranks and groups that are named."""


def watch_text(now: Snapshot, width: int, height: int) -> str:
    """At most `height` lines of `width` columns; groups that have no place are counted."""
    left = "" if now.left_seconds is None else f", {clock(now.left_seconds)} left"
    best = (
        "none"
        if now.best is None
        else f"{percent(now.best[1])} on validation, best ended trial {now.best[0]}"
    )
    trials = ", ".join(f"{num:,} {name.lower()}" for name, num in sorted(now.trials.items()))
    lines = [
        *([] if now.mark is None else [now.mark.line]),
        f"aiperf-hpc · {now.run} · {now.preset} · {now.machine}",
        f"{now.state}, {clock(now.span_seconds)} of the span{left}",
        *([f"{now.verdict[0]}: {now.verdict[1]}"] if now.verdict else []),
        "",
        marked(f"OPS      {rate(now.ops_per_second)} credited so far", now.mark),
        f"         {sparkline(now.curve, max(1, min(60, width - 10)))}",
        marked(f"error    {best}", now.mark),
        marked(f"trials   {trials or 'none'}", now.mark),
        *_slow(now.slow),
        "",
    ]
    # Whatever is said above the table, the screen does not scroll.
    around = len(lines) + 2  # the table's head, and the count of those that have no place
    shown = [*lines, *_table(now.groups, now.rates_of, max(1, height - around - 1))]
    return "\n".join(plain(line)[:width] for line in shown[:height])


def sparkline(values: Sequence[float], width: int) -> str:
    """The values from left to right as bars of eight heights, the first at zero; at most `width` of them. Of
    more values than columns, neighbours are averaged."""
    if not values:
        return ""
    if len(values) > width:
        parts = [values[len(values) * i // width : len(values) * (i + 1) // width] for i in range(width)]
        values = [sum(part) / len(part) for part in parts]
    # Bars begin at zero, so that their lengths compare.
    top = max(values) or 1.0
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int(len(BLOCKS) * value / top))] for value in values)


def _slow(texts: Sequence[str]) -> list[str]:
    """The slowest ranks and groups; of many the rest is counted."""
    lines = [f"{name:<9}{text}" for name, text in zip(["slow", *[""] * SLOW_SHOWN], texts[:SLOW_SHOWN])]
    more = len(texts) - SLOW_SHOWN
    return [*lines, f"         and {more:,} more"] if more > 0 else lines


def _table(groups: Sequence[GroupNow], rates_of: str, most: int) -> list[str]:
    """At most `most` groups. Those that do not train have priority, because they are what a reader looks
    for."""
    if not groups:
        return []
    # False comes first: those that do not train.
    order = sorted(groups, key=lambda group: (group.doing == "training", group.group))
    shown = sorted(order[:most], key=lambda group: group.group)
    host = max(4, *(len(group.host) for group in shown))
    columns = f"{'doing':<8}  {'trial':>6}  {'epoch':>9}  {'error':>8}  {f'{rates_of}/s':>9}  origin"
    lines = [f"{'group':>5}  {'host':<{host}}  {columns}", *(_line(group, host) for group in shown)]
    if len(groups) > len(shown):
        lines.append(f"       and {len(groups) - len(shown):,} more groups")
    return lines


def _line(group: GroupNow, host: int) -> str:
    """A group's line: what it does and, if it trains, how far its trial is."""
    begin = f"{group.group:>5}  {group.host:<{host}}  {group.doing:<8}"
    if group.trial is None:
        return begin.rstrip()
    epoch = f"{group.share * group.epochs:.1f}/{group.epochs}"
    error = "" if group.error is None else percent(group.error)
    speed = "" if group.per_second is None else figure(group.per_second)
    return f"{begin}  {group.trial:>6}  {epoch:>9}  {error:>8}  {speed:>9}  {group.origin}"
