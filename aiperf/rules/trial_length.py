"""Integrity of the steps: whole batches, as many as each trial's plan has, validated when planned."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from math import inf
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from aiperf.config import TrainingConfig
from aiperf.journal.attempts import Attempt, Leg
from aiperf.journal.columns import ValidationRow, sums_of
from aiperf.journal.replay import Replay
from aiperf.proposing.pace import RECENT, TimedValidation, reserved_seconds
from aiperf.proposing.plan import SEGMENT_SECONDS, Plan, plan
from aiperf.rules.rule import DRIFT, LATE_SECONDS, Evidence, Inspection, inspection_of, unknown
from aiperf.wire.reports import NOTHING_KEPT
from aiperf.wire.trial import HyperParameters, State
from aiperf.wording import counted
from nas.ops import OPS

FORMULA_SINCE = 2
"""Version of the rules since which groups reserve time by the formula of `pace`."""
EARLIER_SHARE = 1.5
"""Reserved time before that version, as a multiple of the last validation. Journals of that version are still
judged by it."""
STOP_SECONDS = 60.0  # from the request to stop until the groups have stopped and reported it


def examples(evidence: Evidence) -> Inspection:
    """Steps × batch = examples; a trial runs at most the steps of its plan."""
    replay = evidence.replay
    examples = f"{evidence.task.example}s"
    if not replay.attempts:
        return unknown("no trial was dispatched")
    attempts, done, steps = map(replay.blocks.column, ("attempts", "examples", "steps"))
    batch = np.array([attempt.trial.hyper.batch_size for attempt in replay.attempts])
    numbers = [attempt.trial.number for attempt in replay.attempts]
    contradictions = [
        f"trial {numbers[attempts[row]]}: {done[row]} {examples} in {steps[row]} steps of batch size "
        f"{batch[attempts[row]]}"
        for row in np.flatnonzero(done != steps * batch[attempts])
    ]
    if training_examples := replay.manifest.get("training_examples"):
        plans = _Plans(evidence.config.training, training_examples)
        closed = replay.validations.column
        validated = sums_of(len(replay.attempts), closed("attempt"), closed("steps"))
        planned = [plans.of(attempt) for attempt in replay.attempts]
        for each in zip(replay.attempts, planned, validated):
            contradictions += _against_plan(evidence.config.training, *each)
        contradictions += _closed_early(replay, planned, validated)
    else:
        contradictions.append(f"the ranks did not report the number of training {examples}")
    text = f"{int(done.sum()):,} {examples} in whole batches, as planned"
    return inspection_of(len(replay.blocks), "no training step was run", text, contradictions)


class _Plans:
    """The plans of the trials, of which a long run has few different ones."""

    def __init__(self, training: TrainingConfig, training_examples: int) -> None:
        """`training_examples` is the number of examples of the data, of which the plan is a multiple."""
        self._training, self._examples = training, training_examples
        self._known: dict[tuple[int, HyperParameters], Plan] = {}

    def of(self, attempt: Attempt) -> Plan:
        """The plan of an attempt. Its random seed does not matter, so epochs and hyper-parameters are the
        key."""
        trial = attempt.trial
        key = trial.epochs, trial.hyper
        if key not in self._known:
            self._known[key] = plan(trial, self._training, self._examples)
        return self._known[key]


def _against_plan(training: TrainingConfig, attempt: Attempt, planned: Plan, validated: int) -> Iterator[str]:
    """What an attempt did beyond its plan, or is said to have completed without it. `validated` is the number
    of its steps that a validation closed."""
    number = attempt.trial.number
    if attempt.trial.epochs > max(training.epochs):
        yield f"trial {number}: {attempt.trial.epochs} epochs, more than training.epochs has"
    if attempt.steps > planned.steps:
        yield f"trial {number}: {attempt.steps} steps, but {planned.steps} were planned"
    rows = attempt.rows
    yield from _segments(number, rows, training, planned, goes_on=attempt.steps > validated)
    since = _since_best(rows, attempt.kept) if 0 < training.patience <= len(rows) else ()
    patient = next((at for at, num in enumerate(since) if num == training.patience), None)
    stopped_early = patient is not None
    if stopped_early and patient != len(rows) - 1:
        without = counted(training.patience, "validation")
        yield f"trial {number} continued after {without} without a better error"
    if attempt.state is State.COMPLETE and validated != planned.steps and not stopped_early:
        yield f"trial {number} is complete, but only {validated} of {planned.steps} steps were validated"
    yield from _kept(attempt, rows)


def _kept(attempt: Attempt, rows: Sequence[ValidationRow]) -> Iterator[str]:
    """The network that is kept is that of the best validation. The last one, and no other, may have been late
    for the group: it ends a trial. So near the deadline it may be left out, or chosen though it came late."""
    if (kept := attempt.kept) is None:
        return
    leg, number = attempt.leg, attempt.trial.number
    deadline = inf if leg.deadline is None else leg.deadline
    late = 0.0 if leg.deadline is None else LATE_SECONDS + DRIFT * leg.deadline
    segments = [_best(rows)]
    if rows and rows[-1].end > deadline - late:
        segments.append(_best(rows[:-1]))
    if kept not in segments:
        yield f"trial {number} kept segment {kept}, but {segments[0]} was its best one"
    # A master that stalled across the deadline wrote the validation down that much later.
    late += sum(stall.seconds for stall in leg.stalls if stall.end > deadline)
    if kept != NOTHING_KEPT and rows[kept].end > deadline + late:
        yield f"trial {number} kept segment {kept}, which ended long after the deadline"


def _best(rows: Sequence[ValidationRow]) -> int:
    """The first segment with the lowest unbounded error."""
    return min(rows, key=attrgetter("unbounded")).segment if rows else NOTHING_KEPT


def _segments(
    number: int, rows: Sequence[ValidationRow], training: TrainingConfig, planned: Plan, goes_on: bool
) -> Iterator[str]:
    """Segments that do not have the planned length, except the last one and those that took long. Validations
    are credited too, so a validation that was not due is a contradiction. `goes_on`: after the last one."""
    for row in rows:
        name, is_last = f"trial {number}, segment {row.segment}", row.segment == len(rows) - 1 and not goes_on
        # A group closes a segment after SEGMENT_SECONDS, however many of its steps are left.
        early = row.steps < planned.segment_steps and row.train_seconds < SEGMENT_SECONDS
        if row.steps > planned.segment_steps or row.steps < 1 or (early and not is_last):
            yield f"{name}: {row.steps} steps, but {planned.segment_steps} were planned"
        skips = row.steps if training.format == "fp16" else 0
        if not 0 <= row.skipped <= skips:
            yield f"{name}: {row.skipped} of {row.steps} steps skipped in {training.format}"


def _closed_early(replay: Replay, plans: Sequence[Plan], validated: Sequence[int]) -> Iterator[str]:
    """Trials that were stopped, or validated before their segment was whole, well before their leg ended."""
    by_formula = replay.opened.rules >= FORMULA_SINCE
    reserved = _Reserved(replay).seconds if by_formula else _reserved_earlier(replay).__getitem__
    for attempt, planned, steps in zip(replay.attempts, plans, validated):
        leg, moment = attempt.leg, None
        if attempt.ended is not None and attempt.state is State.STOPPED:
            # A group that is stopped has just validated; the end that it reports cannot be checked.
            worked = [row.end for row in attempt.rows] + [attempt.began or 0.0]
            moment = max(worked)
            if steps >= planned.steps:
                yield f"trial {attempt.trial.number} was stopped after all {planned.steps} steps"
        elif steps < planned.steps and _is_short(attempt, planned):
            moment = attempt.rows[-1].end
        if moment is not None and moment < _closing(leg, reserved(attempt.index)):
            yield f"trial {attempt.trial.number} was closed at {moment:.3f} s, too early in leg {leg.index}"


class _Reserved:
    """The time that groups could reserve for the closing validation of an attempt, which is asked for few of
    a long run's."""

    def __init__(self, replay: Replay) -> None:
        """Indexes the validations of each group once, because a group reserves by what it validated lately,
        in whatever trial."""
        self._replay, self._longest_steps = replay, _longest_steps(replay)
        self._validated: dict[tuple[int, int], array[int]] = {}
        """Rows of `Replay.validations` by leg and group, in order."""
        self._num: list[int] = []
        """How many of them there were at the end of each attempt."""
        for attempt in replay.attempts:
            history = self._validated.setdefault((attempt.leg.index, attempt.group), array("i"))
            history.extend(attempt.places)
            self._num.append(len(history))

    def seconds(self, index: int) -> float:
        """The most that it could be: by what the group had validated before or after the last validation, and
        for a step that might not fit."""
        attempt, num = self._replay.attempts[index], self._num[index]
        validated = self._validated[attempt.leg.index, attempt.group][max(0, num - RECENT - 1) : num]
        rows, attempts = map(self._replay.validations.row, validated), self._replay.attempts
        recent = [TimedValidation(_validating(attempts[row.attempt]), row.validate_seconds) for row in rows]
        seconds = max(reserved_seconds(known, _validating(attempt)) for known in (recent, recent[:-1]))
        return seconds + float(self._longest_steps[index])


def _validating(attempt: Attempt) -> int:
    """OPS of one validated example."""
    return attempt.dispatched.evaluate.price(OPS)


def _longest_steps(replay: Replay) -> NDArray[np.float64]:
    """Seconds of a step in the slowest block of each attempt."""
    column, longest = replay.blocks.column, np.zeros(len(replay.attempts))
    np.maximum.at(longest, column("attempts"), column("seconds") / np.maximum(column("steps"), 1))
    return longest


def _reserved_earlier(replay: Replay) -> list[float]:
    """The same before FORMULA_SINCE: in proportion to the group's longest validation so far."""
    longest = dict[tuple[int, int], float]()
    for attempt in replay.attempts:
        place = attempt.leg.index, attempt.group
        longest[place] = max([longest.get(place, 0.0), *(row.validate_seconds for row in attempt.rows)])
    return [EARLIER_SHARE * longest[attempt.leg.index, attempt.group] for attempt in replay.attempts]


def _is_short(attempt: Attempt, planned: Plan) -> bool:
    """Whether its last segment was closed before it was due."""
    last = attempt.rows[-1:]
    return any(r.steps < planned.segment_steps and r.train_seconds < SEGMENT_SECONDS for r in last)


def _closing(leg: Leg, reserved: float) -> float:
    """The earliest time to close a leg: just before its deadline, or when it may have been told to stop."""
    by_deadline = by_stop = inf
    if leg.deadline is not None:
        late = LATE_SECONDS + DRIFT * leg.deadline
        by_deadline = leg.deadline - reserved - late
    if leg.ended is None or leg.ended.reason != "deadline":
        by_stop = (leg.last if leg.ended is None else leg.ended.end) - STOP_SECONDS
        for stall in reversed(leg.stalls):  # during which the master could not hear that they had stopped
            by_stop -= stall.seconds if stall.end > by_stop else 0.0
    return min(by_deadline, by_stop)


def _since_best(rows: Sequence[ValidationRow], kept: int | None) -> Iterator[int]:
    """After each validation, the number of validations since the best one so far."""
    best, since = inf, 0
    for row in rows:
        in_time = row.in_time if kept is None else row.segment <= kept
        best, since = (row.unbounded, 0) if in_time and row.unbounded < best else (best, since + 1)
        yield since
