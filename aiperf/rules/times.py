"""Integrity of the times: ends in order, spans within their limits, no more work than there was time.

A stall is a time without lines that the master recorded when it continued. A line `Stalled` alone would
excuse any removed lines. If the work of the groups, reported after the stall and logged by each of their
ranks, fills the time, nothing is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.attempts import AFTER_LAST_LINE_SECONDS, Attempt, Leg, Stall
from aiperf.journal.columns import AttemptRow, Pieces
from aiperf.journal.events import TERMINATED
from aiperf.journal.replay import Replay
from aiperf.rules.rule import (
    DRIFT,
    JITTER_SECONDS,
    LATE_SECONDS,
    LEAST_SPAN_SECONDS,
    NEVER_STARTED,
    SHOWN,
    Evidence,
    Inspection,
    inspection_of,
    unknown,
)
from aiperf.wording import counted, percent
from nas.frozen import frozen

ROUNDING_SECONDS = 1e-6  # of the difference of two times
MOST_SURPLUS = 1e-3
"""Largest part of the span by which the work of a run may exceed it by what is allowed for late messages. An
hour in one leg has less than a seventh of it."""
NEWS_SECONDS = 0.1  # by which one message may take longer than the next one
SILENCE_SECONDS = 3 * AFTER_LAST_LINE_SECONDS
"""Silence in seconds that is not checked: a network or a file system may delay reports for as long."""
MOST_CREDITED = 4.0
"""Largest part of a piece of work that counts as done during a stall, as a multiple of the usual length of a
block or validation."""


def times(evidence: Evidence) -> Inspection:
    """Work ends before its line is written, and no group works longer than the time available."""
    replay = evidence.replay
    began = any(attempt.began is not None for attempt in replay.attempts)
    text, contradictions = "no group worked longer than the time available", list(_times(replay))
    if not contradictions and (doubt := _surplus(replay)):
        return unknown(doubt)
    return inspection_of(began, "no trial began", text, contradictions)


def _times(replay: Replay) -> Iterator[str]:
    """Moments that contradict each other within an attempt, then those of blocks, then of groups."""
    closed = replay.validations
    attempts, ends, reported = map(closed.ordered, ("attempt", "end", "t"))
    early: dict[int, list[tuple[str, float, float]]] = {}
    """By attempt: its moments that were reported before they were."""
    for row in map(closed.row, closed.by_attempt[~_in_order(ends, reported)]):
        early.setdefault(row.attempt, []).append((f"segment {row.segment}", row.end, row.t))
    timeless = set(attempts[~(closed.ordered("validate_seconds") > 0)].tolist())
    for attempt, told in zip(replay.attempts, replay.attempt_rows.each):
        number, index = attempt.trial.number, attempt.index
        for what, end, at in (
            ("start", attempt.began, told.begin_time),
            ("end", attempt.ended, told.end_time),
        ):
            if end is not None and not _in_order(end, at):
                early.setdefault(index, []).append((what, end, at))
        for what, end, t in early.get(index, ()):
            yield f"trial {number}: its {what} at {end:.3f} s was reported earlier, at {t:.3f} s"
        if index in timeless:
            yield f"trial {number}: a validation took no time"
        yield from _durations(attempt, told)
        released = attempt.leg.released
        if released is not None and attempt.began is not None and attempt.began < released:
            began = f"trial {number} began at {attempt.began:.3f} s"
            yield f"{began}, before the clock started at {released:.3f} s"
        elif released is not None and told.dispatch_time < released:
            yield f"trial {number} was dispatched before the clock started at {released:.3f} s"
    column = replay.blocks.column
    late = ~_in_order(column("ends"), column("times"))
    nothing = ~(column("seconds") > 0) | (column("steps") <= 0) | (column("examples") <= 0)
    for place in np.nonzero(late | nothing)[0]:
        number = replay.attempts[column("attempts")[place]].trial.number
        what = "was reported before its end" if late[place] else "has no steps or took no time"
        yield f"trial {number}: a block that ended at {column('ends')[place]:.3f} s {what}"
    yield from _order_faults(replay)
    yield from _overfull_shifts(replay)


def _in_order(end: Any, t: Any) -> Any:
    """Whether a moment, or each of a column, is not after the time of its line."""
    return end <= t + ROUNDING_SECONDS


def _durations(attempt: Attempt, told: AttemptRow) -> Iterator[str]:
    """A group prepares a trial after its dispatch and before its first step; no report is older than that."""
    number = attempt.trial.number
    if attempt.began is not None:
        took, room = told.prepare_seconds, attempt.began - told.dispatch_time
        if not 0 < took <= room * (1 + DRIFT) + LATE_SECONDS:
            yield f"trial {number} took {took:.6g} s to prepare, but began {room:.3f} s after its dispatch"
    if attempt.ended is not None:
        age, room = told.age_seconds, told.end_time - told.dispatch_time
        if not 0 <= age <= room * (1 + DRIFT) + LATE_SECONDS:
            yield f"trial {number}: its end was {age:.6g} s old when reported {room:.3f} s after dispatch"


def _order_faults(replay: Replay) -> Iterator[str]:
    """Work that a group reports later has not ended earlier."""
    column, first = replay.blocks.column, replay.totals().first
    attempts, ends, places = column("attempts"), column("ends"), replay.blocks.places(first)
    order = np.argsort(attempts, kind="stable")
    earlier = (np.diff(attempts[order]) == 0) & (np.diff(ends[order]) < -NEWS_SECONDS)
    for row in order[1:][earlier]:
        number = replay.attempts[attempts[row]].trial.number
        yield f"trial {number}: a block ended at {ends[row]:.3f} s, before the previous one"
    earliest, latest = np.full(first[-1], np.inf), np.full(first[-1], -np.inf)
    np.minimum.at(earliest, places, ends)
    np.maximum.at(latest, places, ends)
    closed = replay.validations
    attempts, closes = closed.ordered("attempt"), closed.ordered("end")
    place = first[attempts] + closed.ordered("segment")
    apart = ~((latest[place] - NEWS_SECONDS <= closes) & (closes <= earliest[place + 1] + NEWS_SECONDS))
    faults = [
        (row.attempt, f"{replay.name_of(row)} closed at {row.end:.3f} s, not right after its blocks")
        for row in map(closed.row, closed.by_attempt[apart])
    ]
    done = latest[first[1:] - 1]  # the end of the open segment of each attempt
    is_last = np.diff(attempts, append=-1) != 0
    done[attempts[is_last]] = np.maximum(done[attempts[is_last]], closes[is_last])
    for attempt, worked in zip(replay.attempts, done.tolist()):
        if attempt.ended is not None and attempt.ended < worked - NEWS_SECONDS:
            ended = f"trial {attempt.trial.number} ended at {attempt.ended:.3f} s"
            faults.append((attempt.index, f"{ended}, but its work ended at {worked:.3f} s"))
    yield from (text for _, text in sorted(faults, key=itemgetter(0)))


def _overfull_shifts(replay: Replay) -> Iterator[str]:
    """Groups whose work does not fit into the time between the ends of its pieces."""
    for mine in _shifts(replay):
        leg, end, slack, where = mine.leg, mine.end, mine.slack, f"in leg {mine.leg.index}"
        if leg.released is None:
            yield f"group {mine.group} worked {where}, whose clock never started"
        elif not slack.min() >= -JITTER_SECONDS:  # so written, because NaN compares with nothing
            place = int(slack.argmin())
            worked, passed = np.cumsum(mine.seconds)[place], end[place] - leg.released
            yield f"group {mine.group} worked {worked:.1f} s in the first {passed:.1f} s of leg {leg.index}"
        # Idle time only adds to the slack. It falls where a piece took longer than the time since the end of
        # the piece before it, as if two had been in work at once.
        elif (np.maximum.accumulate(slack) - slack).max() > LATE_SECONDS + np.diff(end).max(initial=0.0):
            yield f"group {mine.group} worked on two things at once {where}"


def _surplus(replay: Replay) -> str:
    """Describes work that fits into the time available only by what is allowed for late messages, if over the
    run that is more than a small share of the span; else empty.

    What is allowed in each leg is absolute. So a span of milliseconds, or a run of many short legs, could
    consist of nothing else.
    """
    by_leg: dict[int, float] = {}
    for mine in _shifts(replay):
        by_leg[mine.leg.index] = max(by_leg.get(mine.leg.index, 0.0), mine.surplus_seconds)
    seconds, span = sum(by_leg.values()), replay.span_seconds
    if seconds <= MOST_SURPLUS * span:
        return ""
    return (
        f"the work takes {seconds:.3g} s more than the span of {span:.3g} s has: messages may be so late, "
        f"but it is more than {percent(MOST_SURPLUS)} of the span"
    )


@frozen
class _Shift:
    """The work of one group in one leg, in the order in which it ended."""

    leg: Leg
    group: int
    end: NDArray[np.float64]
    seconds: NDArray[np.float64]
    closes: bool
    """Whether the last piece is a validation."""

    @property
    def slack(self) -> NDArray[np.float64]:
        """The seconds from the release to the end of each piece in which the group did not work."""
        # The group's clock may run faster than the master's, so its seconds count as the least they can be.
        return self.end - (self.leg.released or 0.0) - np.cumsum(self.seconds) / (1 + DRIFT)

    @property
    def surplus_seconds(self) -> float:
        """The seconds by which the work exceeds the time, at any moment or in the closing validation, which
        begins after the last block; the message of that block may be a little later than the last one."""
        slack = self.slack
        overlap = slack[-2] - slack[-1] - NEWS_SECONDS if self.closes and len(slack) > 1 else 0.0
        return max(0.0, -float(slack.min()), float(overlap))


def _shifts(replay: Replay) -> Iterator[_Shift]:
    """The work of each group in each leg, in the order of its ends, from columns of the whole run."""
    found = replay.pieces()
    legs, groups, end, seconds = found.leg, found.group, found.end, found.seconds
    is_validation = found.is_validation
    order = np.lexsort((end, groups, legs))  # by leg, then by group, then by end
    edges = np.flatnonzero(np.diff(legs[order]) | np.diff(groups[order])) + 1
    for mine in np.split(order, edges) if len(order) else []:
        leg, group = replay.legs[legs[mine[0]]], int(groups[mine[0]])
        yield _Shift(leg, group, end[mine], seconds[mine], bool(is_validation[mine[-1]]))


def span(evidence: Evidence) -> Inspection:
    """Deadlines follow from the configuration, and each leg ends at its deadline or after its last work. The
    span is the sum of all legs from release to end."""
    replay, contradictions, before = evidence.replay, list[str](), 0.0
    limit = replay.opened.config.limits.minutes * 60
    found = replay.pieces()
    end, legs = found.end, found.leg
    for leg in replay.legs:
        contradictions += _limit_faults(leg, limit, before)
        contradictions += [*_reason_faults(leg, replay), *_late_dispatches(leg, replay)]
        last = end[legs == leg.index].max(initial=0.0)
        ended = leg.ended
        if ended is not None and ended.reason != "deadline" and last > ended.end + ROUNDING_SECONDS:
            text = f"leg {leg.index} ended at {ended.end:.3f} s, but its work ended at {last:.3f} s"
            contradictions.append(text)
        before += leg.span_seconds
    text = f"{replay.span_seconds:.1f} s in {counted(replay.num_legs, 'leg')}"
    if not contradictions and (stalls := _unwitnessed_stalls(evidence)):
        return unknown(f"{text}; {'; '.join(stalls)}")
    return inspection_of(replay.released, NEVER_STARTED, text + _stall_note(evidence), contradictions)


def ranked_span(evidence: Evidence) -> Inspection:
    """The span is long enough, in one leg, and no lines may be missing from it."""
    replay = evidence.replay
    minutes, legs, wrong = replay.span_seconds / 60, len(replay.timed_legs), list[str]()
    if legs and replay.span_seconds < LEAST_SPAN_SECONDS - ROUNDING_SECONDS:
        wrong.append(f"the span is {minutes:.2f} minutes; at least 60 are required")
    if legs > 1:
        wrong.append(f"the run has {legs} legs, not one")
    wrong += _unwitnessed_stalls(evidence)
    return inspection_of(legs, NEVER_STARTED, f"{minutes:.1f} minutes in one leg", wrong)


def _limit_faults(leg: Leg, limit: float, before: float) -> Iterator[str]:
    """A leg's deadline is what the limit leaves after the legs before, and its end is within its lines."""
    yield from _silence(leg)
    if leg.released is None:
        return
    if (leg.deadline is None) != (limit == 0):
        yield f"leg {leg.index}: the deadline is {leg.deadline}, but limits.minutes is {limit / 60:g}"
    elif leg.deadline is not None and abs(leg.deadline - leg.released - (limit - before)) > JITTER_SECONDS:
        wanted, has = limit - before, leg.deadline - leg.released
        yield f"leg {leg.index} has {has:.1f} s to its deadline; limits.minutes leaves {wanted:.1f} s"
    if leg.ended is None:
        return
    if leg.ended.reason == "deadline" and leg.ended.end != leg.deadline:
        yield f"leg {leg.index} has the deadline {leg.deadline}, but ended at {leg.ended.end}"
    if not leg.released - JITTER_SECONDS <= leg.ended.end <= leg.last:
        yield f"leg {leg.index} ended at {leg.ended.end:.3f} s, outside the times of its lines"


def _reason_faults(leg: Leg, replay: Replay) -> Iterator[str]:
    """A leg ends at a limit that is set and was reached."""
    if leg.ended is None:
        return
    reason, limits = leg.ended.reason, replay.opened.config.limits
    error = None if replay.best is None else replay.best.error
    reached = {
        "deadline": limits.minutes > 0,
        "trials": 0 < limits.max_trials <= len(replay.trials),
        "target": error is not None and error <= limits.target_error,
        "interrupted": True,
        TERMINATED: True,
    }
    if not reached.get(reason, reason.startswith(("error: ", "exhausted: "))):
        yield f"leg {leg.index} ended with the reason {reason!r}, which did not apply"


def _late_dispatches(leg: Leg, replay: Replay) -> Iterator[str]:
    """Nothing is dispatched once a limit is reached."""
    limits, attempts = replay.opened.config.limits, [a for a in replay.attempts if a.leg is leg]
    if limits.max_trials and (more := [a for a in attempts if a.trial.number >= limits.max_trials]):
        yield f"trial {more[0].trial.number} was dispatched, but limits.max_trials is {limits.max_trials}"
    if not limits.target_error:
        return
    ends = [
        arrival.end_time
        for arrival in replay.arrivals
        if arrival.leg is leg and arrival.chosen_from and arrival.end_time is not None
        if arrival.error is not None and arrival.error <= limits.target_error
    ]
    if ends and (late := [a for a in attempts if a.dispatch_time > min(ends)]):
        yield (
            f"trial {late[0].trial.number} was dispatched after limits.target_error "
            f"{limits.target_error:g} was reached at {min(ends):.3f} s"
        )


def _silence(leg: Leg) -> Iterator[str]:
    """Reports a leg with a silence that no stall explains."""
    if leg.longest_silence > SILENCE_SECONDS:
        yield f"leg {leg.index} has no lines for {leg.longest_silence:.0f} s: lines are missing"


def _stall_note(evidence: Evidence) -> str:
    """A note on long stalls during which the groups worked on; empty if there were none."""
    long = [stall.seconds for leg in evidence.replay.legs for stall in _long(leg)]
    return f"; the master stalled for {sum(long):.0f} s while the groups worked on" if long else ""


def _unwitnessed_stalls(evidence: Evidence) -> list[str]:
    """Long stalls within the span during which no work is known to have continued."""
    stalls = [(leg, stall) for leg in evidence.replay.legs for stall in _long(leg)]
    if not stalls:
        return []
    found, work = list[str](), _Columns.of(evidence.replay.pieces())
    for leg, stall in stalls:
        if groups := [each for each in range(leg.groups) if not _went_on(evidence, work, leg, stall, each)]:
            named = ", ".join(map(str, groups[:SHOWN])) + ", …" * (len(groups) > SHOWN)
            found.append(
                f"the master stalled for {stall.seconds:.0f} s in leg {leg.index}, and it is unknown "
                f"whether group {named} worked on: lines may be missing"
            )
    return found


@frozen
class _Columns:
    """The columns of `Pieces` that each group and stall is asked about."""

    attempt: NDArray[np.int64]
    group: NDArray[np.int64]
    leg: NDArray[np.int64]
    time: NDArray[np.float64]
    seconds: NDArray[np.float64]

    @classmethod
    def of(cls, found: Pieces) -> _Columns:
        return cls(found.attempt, found.group, found.leg, found.time, found.seconds)


def _long(leg: Leg) -> list[Stall]:
    """The long stalls of a leg, cut to its part of the span, because nothing is counted before and after
    it."""
    if leg.released is None:
        return []
    inside = [Stall(max(stall.begin, leg.released), min(stall.end, leg.end)) for stall in leg.stalls]
    return [stall for stall in inside if stall.seconds > SILENCE_SECONDS]


def _went_on(evidence: Evidence, work: _Columns, leg: Leg, stall: Stall, group: int) -> bool:
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
    mine = np.isin(work.attempt, [attempt.index for attempt in had])
    mine &= (work.time > stall.begin) & (work.time <= heard)
    # A group that stalled too reports one long piece, so no piece counts as much longer than usual.
    others = work.seconds[(work.group == group) & (work.leg == leg.index) & ~mine]
    usual = MOST_CREDITED * np.median(others) if len(others) else 0.0
    pieces_of_work = np.minimum(work.seconds[mine], max(AFTER_LAST_LINE_SECONDS, usual))
    # The first piece began before the stall, and the last one is reported when it is done.
    edges = AFTER_LAST_LINE_SECONDS + pieces_of_work.max(initial=0.0)
    return bool(pieces_of_work.sum() + edges >= stall.seconds)


def _is_open(attempt: Attempt, stall: Stall) -> bool:
    """Whether an attempt was in progress when the stall began."""
    ended = attempt.end_time
    return attempt.dispatch_time <= stall.begin and (ended is None or ended > stall.begin)
