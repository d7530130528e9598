"""Which group was busy when, and how the groups spent their time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.axis import SpanAxis
from aiperf.journal.replay import Replay
from aiperf.score.credit import Credit
from aiperf.wire.trial import State
from nas.frozen import frozen

PARTS = ("train", "validate", "prepare", "wait", "lost")
"""Parts of a group's time, in the order in which they are shown. Work that was not credited is lost, and so
is the time after the loss of a group; prepare is the time that a group waited for its next network to be
ready."""
PART_TEXTS: Mapping[str, str] = {
    "train": "credited training",
    "validate": "credited validation",
    "prepare": "waiting for the next network",
    "wait": "otherwise idle",
    "lost": "lost (uncredited work and lost groups)",
}
"""The words for each part: the same in figures, tables and comparisons."""


@dataclass(frozen=True, slots=True)  # a long run has a hundred thousand of them
class Bar:
    """One attempt on its group, in seconds of the span."""

    trial: int
    group: int
    begin: float
    end: float
    state: State


@frozen
class Occupancy:
    """How the groups spent their time."""

    num_groups: int
    span_seconds: float
    bars: tuple[Bar, ...]
    lost: tuple[tuple[int, float, float], ...]
    """Group, and from when to when it was lost, in seconds of the span."""
    seconds: NDArray[np.float64]
    """Seconds: a row for each group, a column for each of PARTS."""
    span_of_group: NDArray[np.float64]
    resumed: tuple[float, ...]
    """When the legs after the first begin, in seconds of the span."""

    @property
    def shares(self) -> dict[str, float]:
        """Share of each part in the span of all groups together; the shares add up to 1."""
        total = float(self.span_of_group.sum())
        return {
            part: float(self.seconds[:, i].sum()) / total if total else 0.0 for i, part in enumerate(PARTS)
        }


def occupancy(replay: Replay, credited: Credit) -> Occupancy:
    """Where the time of each group went. The parts of a group add up to its span."""
    axis, num_groups = SpanAxis(replay.legs), max((leg.groups for leg in replay.legs), default=0)
    seconds = np.zeros((num_groups, len(PARTS)))
    span_of_group = np.array(
        [sum(leg.span_seconds for leg in replay.legs if group < leg.groups) for group in range(num_groups)]
    )
    resumed = tuple(axis.begins[1:].tolist())
    if not num_groups or not span_of_group.any():
        return Occupancy(num_groups, 0.0, (), (), seconds, span_of_group, resumed)
    last_work = _work(replay, credited, axis, seconds)
    bars = _bars(replay, axis, last_work)
    lost = _lost_groups(replay, axis, bars)
    for group, begin, end in lost:
        seconds[group, PARTS.index("lost")] += end - begin
    _gaps(replay, axis, bars, seconds)
    wait = PARTS.index("wait")  # all that is left of a group's span, so it is computed last
    seconds[:, wait] = np.maximum(0.0, span_of_group - np.delete(seconds, wait, axis=1).sum(axis=1))
    return Occupancy(num_groups, replay.span_seconds, bars, lost, seconds, span_of_group, resumed)


def _work(
    replay: Replay, credited: Credit, axis: SpanAxis, seconds: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Adds up train, validate and lost; returns the end of the last piece of each attempt."""
    found = replay.pieces()
    end = axis.of(found.leg, found.end)
    inside = end - axis.of(found.leg, found.end - found.seconds)
    last = np.zeros(len(replay.attempts))
    np.maximum.at(last, found.attempt, end)
    del end
    group, is_validation, counts = found.group, found.is_validation, credited.pieces
    columns = {"train": counts & ~is_validation, "validate": counts & is_validation, "lost": ~counts}
    for part, chosen in columns.items():
        done = np.bincount(group[chosen], weights=inside[chosen], minlength=len(seconds))
        seconds[:, PARTS.index(part)] += done
    return last


def _bars(replay: Replay, axis: SpanAxis, last_work: NDArray[np.float64]) -> tuple[Bar, ...]:
    """A bar for each attempt that began, up to its last work or to its end, whichever is later."""
    bars = []
    for attempt in replay.attempts:
        if attempt.began is None:
            continue
        begin = axis.at(attempt.leg, attempt.began)
        end = float(last_work[attempt.index])
        if attempt.ended is not None:
            end = max(end, axis.at(attempt.leg, attempt.ended))
        bars.append(Bar(attempt.trial.number, attempt.group, begin, max(begin, end), attempt.state))
    return tuple(bars)


def _lost_groups(replay: Replay, axis: SpanAxis, bars: Sequence[Bar]) -> tuple[tuple[int, float, float], ...]:
    """A loss is reported without its time; it lies after the group's last work."""
    found = list[tuple[int, float, float]]()
    for leg in replay.legs:
        begin, end = float(axis.begins[leg.index]), float(axis.ends[leg.index])
        last = {loss.group: begin for loss in leg.losses if loss.group not in leg.alive}
        for bar in bars:
            if bar.group in last and begin <= bar.end <= end:
                last[bar.group] = max(last[bar.group], bar.end)
        found += [(group, last[group], end) for group in sorted(last) if end > last[group]]
    return tuple(found)


def _gaps(replay: Replay, axis: SpanAxis, bars: Sequence[Bar], seconds: NDArray[np.float64]) -> None:
    """Adds up prepare: the part of the gap before a bar in which the group waited for its network to be
    ready, from when the network was sent to it."""
    begun = [attempt for attempt in replay.attempts if attempt.began is not None]
    free: dict[int, float] = {}
    order = np.lexsort(([bar.begin for bar in bars], [bar.group for bar in bars])).tolist()
    prepare = PARTS.index("prepare")
    for place in order:
        bar, attempt = bars[place], begun[place]
        assert attempt.began is not None
        leg_begin = float(axis.begins[attempt.leg.index])
        since = max(free.get(bar.group, 0.0), leg_begin)
        told = axis.at(attempt.leg, attempt.dispatch_time)
        ready = told + attempt.prepare_seconds
        seconds[bar.group, prepare] += max(0.0, min(ready, bar.begin) - max(told, since))
        free[bar.group] = max(bar.end, free.get(bar.group, 0.0))
