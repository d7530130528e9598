"""Stalls of the master, which it recorded when it continued, and whether its groups worked on meanwhile.

A line `Stalled` alone would excuse any removed lines. If the work of the groups, reported after the stall and
logged by each of their ranks, fills the time, nothing is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aiperf.journal.attempts import AFTER_LAST_LINE_SECONDS, Attempt, Leg, Stall
from aiperf.journal.columns import pieces
from aiperf.rules.rule import Evidence

SILENCE_SECONDS = 3 * AFTER_LAST_LINE_SECONDS
"""Silence in seconds that is not checked: a network or a file system may delay reports for as long."""

SHOWN = 3
MOST_OF_A_PIECE = 4.0
"""Largest part of a piece of work that counts, as a multiple of the usual length of a block or validation."""


def silent(leg: Leg) -> Iterator[str]:
    """Reports a leg with a silence that no stall explains."""
    if leg.longest_silence > SILENCE_SECONDS:
        yield f"leg {leg.index} has no lines for {leg.longest_silence:.0f} s: lines are missing"


def told(evidence: Evidence) -> str:
    """A note on long stalls during which the groups worked on; empty if there were none."""
    long = [stall.seconds for leg in evidence.replay.legs for stall in _long(leg)]
    return f"; the master stalled for {sum(long):.0f} s while the groups worked on" if long else ""


def unwitnessed(evidence: Evidence) -> list[str]:
    """Long stalls within the span during which no work is known to have continued."""
    found = []
    for leg in evidence.replay.legs:
        for stall in _long(leg):
            if groups := [group for group in range(leg.groups) if not _went_on(evidence, leg, stall, group)]:
                named = ", ".join(map(str, groups[:SHOWN])) + ", …" * (len(groups) > SHOWN)
                found.append(
                    f"the master stalled for {stall.seconds:.0f} s in leg {leg.index}, and it is unknown "
                    f"whether group {named} worked on: lines may be missing"
                )
    return found


def _long(leg: Leg) -> list[Stall]:
    """The long stalls of a leg, cut to its part of the span, because nothing is counted before and after
    it."""
    if leg.released is None:
        return []
    inside = [Stall(max(stall.begin, leg.released), min(stall.end, leg.end)) for stall in leg.stalls]
    return [stall for stall in inside if stall.seconds > SILENCE_SECONDS]


def _went_on(evidence: Evidence, leg: Leg, stall: Stall, group: int) -> bool:
    """Whether the trials that it had at the start fill the time, or ended within it. Each of its ranks must
    have a log, which `witnesses` compares with them."""
    files = evidence.files
    for rank in leg.began.groups[group]:
        ready = leg.devices.get(rank)
        if files is None or ready is None or not files.witness(ready.host, rank).is_file():
            return False
    heard = stall.end + AFTER_LAST_LINE_SECONDS
    had = [a for a in evidence.replay.attempts if a.leg is leg and a.group == group and _is_open(a, stall)]
    if all(a.end_time is not None and a.end_time <= heard for a in had):
        return True
    work = pieces(evidence.replay)
    mine = np.isin(work.attempt, [attempt.index for attempt in had])
    mine &= (work.time > stall.begin) & (work.time <= heard)
    # A group that stalled too reports one long piece, so no piece counts as much longer than usual.
    others = work.seconds[(work.group == group) & (work.leg == leg.index) & ~mine]
    usual = MOST_OF_A_PIECE * np.median(others) if len(others) else 0.0
    pieces_of_work = np.minimum(work.seconds[mine], max(AFTER_LAST_LINE_SECONDS, usual))
    # The first piece began before the stall, and the last one is reported when it is done.
    edges = AFTER_LAST_LINE_SECONDS + pieces_of_work.max(initial=0.0)
    return bool(pieces_of_work.sum() + edges >= stall.seconds)


def _is_open(attempt: Attempt, stall: Stall) -> bool:
    ended = attempt.end_time
    return attempt.dispatch_time <= stall.begin and (ended is None or ended > stall.begin)
