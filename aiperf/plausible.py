"""Integrity of who worked and when: clocks, ranks, spans, and no more work than there was time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aiperf.findings import Evidence, Seen
from aiperf.messages import Ready
from aiperf.pieces import pieces
from aiperf.replay import Replay
from aiperf.story import BEAT_SECONDS, Leg

__all__ = ["clocks", "code", "initialisation", "misdeclared", "precision", "ranks", "span", "speed", "times"]

CLOCK_SECONDS = 1.0
INITIALISATION_SECONDS = 1800.0
# News of work is late by what the master was busy with, never early; a master that is silent for longer
# than a heartbeat is dead. News that a network or a file system held up comes after a silence as long.
LATE_SECONDS = BEAT_SECONDS
SILENCE_SECONDS = 3 * BEAT_SECONDS
DRIFT = 1e-3  # of one host's clock against another's, of the time that both measure
JITTER_SECONDS = 0.5
ROUNDING_SECONDS = 1e-6


def times(evidence: Evidence) -> Seen:
    """Work ends before its line is written, and no group works more seconds than there are."""
    return Seen("no group worked longer than there was time", list(_times(evidence.replay)))


def _times(replay: Replay) -> Iterator[str]:
    for attempt in replay.attempts:
        number = attempt.trial.number
        moments = [(v.end, v.t, f"segment {v.segment.index}") for v in attempt.validations]
        if attempt.began is not None and attempt.begin_time is not None:
            moments.append((attempt.began.end, attempt.begin_time, "begin"))
        if attempt.ended is not None and attempt.end_time is not None:
            moments.append((attempt.ended.end, attempt.end_time, "end"))
        for end, t, what in moments:
            if not end <= t + ROUNDING_SECONDS:
                yield f"trial {number}: its {what} at {end:.3f} s was told before, at {t:.3f} s"
        if not all(v.segment.validate_seconds > 0 for v in attempt.validations):
            yield f"trial {number}: a validation took no time"
    column = replay.blocks.column
    late = ~(column("ends") <= column("times") + ROUNDING_SECONDS)
    nothing = ~(column("seconds") > 0) | (column("steps") <= 0) | (column("images") <= 0)
    for row in np.nonzero(late | nothing)[0]:
        number = replay.attempts[column("attempts")[row]].trial.number
        what = "was told before its end" if late[row] else "holds no steps or took no time"
        yield f"trial {number}: a block that ended at {column('ends')[row]:.3f} s {what}"
    yield from _overfull(replay)


def _overfull(replay: Replay) -> Iterator[str]:
    """Groups whose work does not fit into the time between its ends."""
    found = pieces(replay)
    for leg in replay.legs:
        for group in range(leg.groups):
            mine = (found.group == group) & (found.leg == leg.index)
            if not mine.any():
                continue
            if leg.released is None:
                yield f"group {group} worked in leg {leg.index} before the release"
                continue
            order = np.argsort(found.end[mine], kind="stable")
            end, work = found.end[mine][order], np.cumsum(found.seconds[mine][order])
            slack = end - leg.released - work / (1 + DRIFT)
            if not slack.min() >= -JITTER_SECONDS:
                place = int(slack.argmin())
                yield (
                    f"group {group} had worked {work[place]:.1f} s by {end[place] - leg.released:.1f} s "
                    f"after the release of leg {leg.index}"
                )
            elif (np.maximum.accumulate(slack) - slack).max() > LATE_SECONDS + np.diff(end).max(initial=0.0):
                yield f"group {group} worked on two things at once in leg {leg.index}"


def span(evidence: Evidence) -> Seen:
    """Deadlines follow from the configuration, and each leg ends at its deadline or after its last work."""
    replay, contradictions, before = evidence.replay, list[str](), 0.0
    limit = replay.opened.config.limits.minutes * 60
    found = pieces(replay)
    for leg in replay.legs:
        contradictions += _of_leg(leg, limit, before)
        last = found.end[found.leg == leg.index].max(initial=0.0)
        if leg.ended is not None and leg.deadline is None and last > leg.ended.end + ROUNDING_SECONDS:
            contradictions.append(f"leg {leg.index} ended at {leg.ended.end:.3f} s, its work at {last:.3f} s")
        before += leg.span_seconds
    return Seen(f"{replay.span_seconds:.1f} s in {replay.num_legs} legs", contradictions)


def _of_leg(leg: Leg, limit: float, before: float) -> Iterator[str]:
    if leg.longest_silence > SILENCE_SECONDS:
        yield f"leg {leg.index} is silent for {leg.longest_silence:.0f} s: lines are missing"
    if leg.released is None:
        return
    if (leg.deadline is None) != (limit == 0):
        yield f"leg {leg.index}: its deadline is {leg.deadline}, with limits.minutes {limit / 60:g}"
    elif leg.deadline is not None and abs(leg.deadline - leg.released - (limit - before)) > JITTER_SECONDS:
        wanted, has = limit - before, leg.deadline - leg.released
        yield f"leg {leg.index} has {has:.1f} s to its deadline; limits.minutes leaves {wanted:.1f} s"
    if leg.ended is None:
        return
    if leg.ended.reason == "deadline" and leg.ended.end != leg.deadline:
        yield f"leg {leg.index} ended by its deadline {leg.deadline}, but at {leg.ended.end}"
    if leg.ended.end > leg.last or leg.ended.end < leg.released:
        yield f"leg {leg.index} ended at {leg.ended.end:.3f} s, outside its lines"


def ranks(evidence: Evidence) -> Seen:
    """Every rank of every group was ready before the release, with the same initial weights."""
    replay, contradictions = evidence.replay, list[str]()
    first = next((event.ready for leg in replay.legs for event in leg.ranks), None)
    if first is None:
        return Seen("no rank was ready", known=False)
    for leg in replay.legs:
        seen = {event.ready.rank for event in leg.ranks}
        if leg.released is not None:
            missing = sorted({rank for group in leg.began.groups for rank in group} - seen)
            contradictions += [f"rank {rank} was not seen in leg {leg.index}" for rank in missing]
        contradictions += [
            f"rank {event.ready.rank} began with other initial weights"
            for event in leg.ranks
            if event.ready.initial_weights != first.initial_weights
        ]
    return Seen(f"all ranks were seen; initial weights {first.initial_weights[:12]}…", contradictions)


def code(evidence: Evidence) -> Seen:
    """One program on the master and on all ranks."""
    opened, replay = evidence.replay.opened, evidence.replay
    contradictions = [
        f"rank {event.ready.rank} on {event.ready.host} ran other code"
        for leg in replay.legs
        for event in leg.ranks
        if event.ready.code_hash != opened.code_hash
    ]
    if not opened.code_hash:
        contradictions.append("the hash of the code was not recorded")
    return Seen(f"aiperf-hpc {opened.program}, code {opened.code_hash[:12]}…", contradictions)


def clocks(evidence: Evidence) -> Seen:
    """The hosts' times of day, compared once."""
    offsets = [
        (abs(event.clock_offset_seconds), event.ready.host)
        for leg in evidence.replay.legs
        for event in leg.ranks
    ]
    wrong = sorted({(host, offset) for offset, host in offsets if offset > CLOCK_SECONDS})
    largest = max(offsets, default=(0.0, ""))[0]
    return Seen(
        f"the largest difference is {largest:.3f} s",
        [f"the clock of {host} is {offset:.1f} s off" for host, offset in wrong],
    )


def initialisation(evidence: Evidence) -> Seen:
    took = [leg.released - leg.first for leg in evidence.replay.legs if leg.released is not None]
    return Seen(
        f"it took {max(took, default=0.0):.0f} s at the most",
        [f"a leg took {seconds:.0f} s" for seconds in took if seconds > INITIALISATION_SECONDS],
    )


def precision(evidence: Evidence) -> Seen:
    """Every rank multiplied in the declared format when it was asked to, before the span."""
    declared = evidence.replay.opened.config.training.format
    ranks = [event.ready for leg in evidence.replay.legs for event in leg.ranks]
    if not all(ready.multiplies for ready in ranks):
        return Seen(f"declared in {declared}; what the devices did was not recorded", known=False)
    wrong = [text for ready in ranks for text in misdeclared(declared, ready)]
    return Seen(f"matrix products and convolutions were seen in {declared} on every rank", wrong)


def misdeclared(format: str, ready: Ready) -> list[str]:
    """What a rank multiplies in another format than declared.

    Where TF32 is declared a library may still choose fp32, which is wider.
    """
    fitting = (format, "fp32") if format == "tf32" else (format,)
    return [
        f"training.format is {format}, and rank {ready.rank} on {ready.host} made a {kind} in {seen}"
        for kind, seen in ready.multiplies.items()
        if seen not in fitting
    ]


def speed(evidence: Evidence) -> Seen:
    """No device computes faster than its data sheet says."""
    mfu = evidence.score.mfu
    if mfu is None:
        return Seen("a device has no listed peak", known=False)
    return Seen(f"{mfu:.1%} of the peak", [f"{mfu:.1%} of the peak of all devices"] if mfu > 1 else [])
