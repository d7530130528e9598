"""Why a part of a run's work was not credited, in one line."""

from __future__ import annotations

from collections.abc import Iterator

from aiperf.journal.attempts import Attempt
from aiperf.journal.replay import Replay
from aiperf.score.credit import Credit, credit
from aiperf.score.score import Score
from aiperf.trial import State
from aiperf.wording import percent
from nas.ops import OPS, Ops

LEAST_SHARE = 0.01
"""Smallest share of all operations that is reported: a run always ends within some segments."""
LATE = "validated after the deadline"
NOT_APPLIED = "with steps that were not applied"
REPEATED = "trained again after a loss"
FAILED = "of trials that failed"
LOST = "of attempts that were lost"
OPEN = "not validated by the end"
WORDS = (LATE, OPEN, FAILED, LOST, NOT_APPLIED, REPEATED)


def uncredited_text(replay: Replay, score: Score) -> list[str]:
    """The share of the operations that were done and not credited, and why; nothing if it is small."""
    whole = score.raw.operations
    missing = whole - score.goodput.operations
    if not whole or missing / whole < LEAST_SHARE:
        return []
    sums = dict.fromkeys(WORDS, 0)
    latest = 0.0
    for why, operations, late in _parts(replay, credit(replay)):
        sums[why] += operations
        latest = max(latest, late)  # below 0 for a validation in time
    total = sum(sums.values()) or 1
    reasons = [
        f"{percent(missing / whole * operations / total, 1)} {why}"
        + (f", the last one by {latest:.1f} s" if why == LATE else "")
        for why, operations in sorted(sums.items(), key=lambda item: -item[1])
        if operations
    ]
    return [f"{percent(missing / whole, 1)} of the operations done: {'; '.join(reasons)}"]


def _parts(replay: Replay, credited: Credit) -> Iterator[tuple[str, int, float]]:
    """For each segment that was not credited: why, its operations, and the seconds by which its validation
    was late."""
    totals = replay.totals()
    for attempt in replay.attempts:
        job, first = attempt.dispatched, int(totals.first[attempt.index])
        train = Ops(*job.forward).price(OPS) + Ops(*job.backward).price(OPS)
        evaluate = Ops(*job.evaluate).price(OPS)
        for index, validation in enumerate(attempt.validations):
            if not credited.has(attempt, validation):
                done = train * int(totals.examples[first + index]) + evaluate * validation.segment.of
                late = validation.end - attempt.leg.end
                yield LATE if late > 0 else _why_closed(replay, credited, attempt, index), done, late
        yield _why_open(attempt), train * int(totals.examples[first + len(attempt.validations)]), 0.0


def _why_closed(replay: Replay, credited: Credit, attempt: Attempt, index: int) -> str:
    """Why a segment was not credited that was validated in time."""
    others = replay.trials[attempt.trial.number].attempts
    repeated = any(credited.has(each, v) for each in others for v in each.validations[index : index + 1])
    return REPEATED if repeated else NOT_APPLIED


def _why_open(attempt: Attempt) -> str:
    """Why the last segment of an attempt was not closed."""
    return {State.FAILED: FAILED, State.LOST: LOST}.get(attempt.state, OPEN)
