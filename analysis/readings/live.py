"""A run as it goes on: its journal, followed line by line, and where the run stands now."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from aiperf.errors import JournalError
from aiperf.journal.axis import SpanAxis
from aiperf.journal.file import JournalReader
from aiperf.journal.mark import Mark, mark_of
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.os_error import unreadable
from aiperf.rules.ending import Shortfall, shortfall
from aiperf.tasks.registry import task_of
from aiperf.wording import clock
from analysis.readings.hosts import GroupNow, groups_now
from analysis.readings.judgement import glance_at, uncollected
from analysis.readings.outliers import WINDOW_SECONDS, outlier_text, outliers
from analysis.readings.run_tables import devices_text, verdict_text, verdict_word
from nas.frozen import frozen
from nas.ops import OPS

BINS = 60
"""Bins of the curve of OPS: a terminal shows one in each column."""
LONGEST_SILENCE_SECONDS = 60.0
"""Time without a new line after which a run counts as silent: a living master writes every few seconds."""


@frozen
class Snapshot:
    """Where a run stands. Times are on the master's clock: they stand still when its journal does."""

    run: str
    """Name of the run."""
    preset: str
    machine: str
    """Its devices and hosts, with a mark if it was not measured."""
    state: str
    """What it does, or how it ended, in words."""
    span_seconds: float
    """Seconds of the span so far."""
    left_seconds: float | None
    """Time to the deadline, or as the trials so far suggest; None if neither is known."""
    ops_per_second: float
    """Credited operations so far, over the span so far."""
    curve: Sequence[float]
    """OPS by bin of all steps that were made, whether credited later or not."""
    bin_seconds: float
    """Length of a bin."""
    best: tuple[int, float] | None
    """Trial and validation error."""
    trials: Mapping[str, int]
    """Number of trials by state."""
    groups: Sequence[GroupNow]
    rates_of: str
    """The unit of rates, such as "images"."""
    slow: Sequence[str]
    """Ranks and groups far below the others, as of the last whole minute of the span."""
    verdict: tuple[str, str] | None = None
    """The verdict of a run that has ended: the word, and a sentence after it; None before."""
    mark: Mark | None = None


def silent_seconds(files: RunFiles) -> float:
    """Seconds since the journal last grew, by the clocks of this host and of its file system.

    Raises JournalError for a journal that is gone.
    """
    try:
        return max(0.0, time.time() - files.journal.stat().st_mtime)
    except OSError as error:
        raise JournalError(unreadable(error, files.journal, "give a run directory")) from None


def may_grow(files: RunFiles, silent_seconds: float) -> bool:
    """Whether more lines may follow: the journal grew lately, and no master has released its lock since."""
    with suppress(OSError):  # there is no lock in a copy
        if not files.lock.stat().st_size:
            return False
    return silent_seconds <= LONGEST_SILENCE_SECONDS


class Follower:
    """Reads what was appended since the last call, and disturbs nothing.

    Operations are those that the journal states, because a recount takes too long while a run goes on.
    """

    def __init__(self, files: RunFiles) -> None:
        self.files = files
        self.replay = Replay()
        self._reader = JournalReader(files.journal)
        self._credited = 0
        self._closed = 0
        """Number of validations that were looked at."""
        self._known: set[tuple[int, int]] = set()
        """Trials and segments that were credited: a segment that is tried again counts the first time
        only."""
        self._prices: list[int] = []
        """Operations of one training example, by attempt."""
        self._judged: tuple[int, tuple[str, str] | None] = (0, None)
        """Number of lines of the journal, and the verdict on them."""
        self._slow: tuple[object, Sequence[str]] = (None, ())
        """The minute, and the slow ranks and groups that were found in it."""

    def update(self) -> bool:
        """Reads the new lines, and returns whether there were any. Raises JournalError."""
        before = self.replay.lines
        with uncollected():
            self._reader.fold_into(self.replay)
        self._price()
        self._credit()
        return self.replay.lines > before

    @property
    def silent_seconds(self) -> float:
        """Raises JournalError for a journal that is gone."""
        return silent_seconds(self.files)

    def shortfall(self, silent_seconds: float) -> Shortfall | None:
        """What the run lacks of a result; a test may go on while the journal may grow."""
        growing = may_grow(self.files, silent_seconds)
        return shortfall(self.replay, self._credited > 0, self.files.directory, growing)

    def snapshot(self, silent_seconds: float = 0.0) -> Snapshot:
        """Where the run stands, once `update` has read a line. `silent_seconds` is the time since the journal
        grew."""
        replay = self.replay
        span, best = replay.seconds_so_far, replay.best
        curve, bin_seconds = self._curve(span)
        return Snapshot(
            run=replay.opened.run_id,
            preset=replay.opened.config.preset,
            machine=devices_text(replay),
            state=_state(replay, self.shortfall(silent_seconds), silent_seconds),
            span_seconds=span,
            left_seconds=_left(replay),
            ops_per_second=self._credited / span if span > 0 else 0.0,
            curve=curve,
            bin_seconds=bin_seconds,
            best=(best.number, best.error) if best and best.error is not None else None,
            trials=Counter(story.state.value for story in replay.trials.values()),
            groups=groups_now(replay) if replay.legs else (),
            rates_of=task_of(replay.opened.config.data).amount.name,
            mark=mark_of(replay.opened.origin),
            slow=self._named(span),
            verdict=self._verdict(silent_seconds),
        )

    def _verdict(self, silent_seconds: float) -> tuple[str, str] | None:
        """The verdict as `report` shows it, examined once, when the run has ended and its best network was
        tested."""
        ended = self.replay.legs and self.replay.leg.ended is not None
        if not ended or self.shortfall(silent_seconds) is not None:
            return None
        if self._judged[0] != self.replay.lines:
            judged = glance_at(self.files, self.replay)
            said = verdict_word(judged.verdict, judged.validated)
            self._judged = self.replay.lines, (said, verdict_text(judged.verdict, judged.validated))
        return self._judged[1]

    def _named(self, span: float) -> Sequence[str]:
        """The slow ranks and groups, searched for once per minute, because in a long run that takes
        seconds."""
        leg = self.replay.leg if self.replay.legs else None
        moment = leg and (leg.index, leg.released, leg.ended is None, span // WINDOW_SECONDS)
        if self._slow[0] != moment:
            self._slow = moment, [outlier_text(outlier) for outlier in outliers(self.replay)]
        return self._slow[1]

    def _price(self) -> None:
        """Keeps the operations of one training example of each new attempt, because each of its blocks needs
        them."""
        for attempt in self.replay.attempts[len(self._prices) :]:
            dispatched = attempt.dispatched
            self._prices.append((dispatched.forward + dispatched.backward).price(OPS))

    def _credit(self) -> None:
        """Adds the operations of the segments that were closed in time since the last call."""
        closed = self.replay.validations
        for row in map(closed.row, range(self._closed, len(closed))):
            attempt = self.replay.attempts[row.attempt]
            place = attempt.trial.number, row.segment
            if row.in_time and not row.skipped and place not in self._known:
                self._known.add(place)
                evaluate = attempt.dispatched.evaluate.price(OPS)
                self._credited += self._prices[row.attempt] * row.train_examples + evaluate * row.of
        self._closed = len(closed)

    def _curve(self, span: float) -> tuple[list[float], float]:
        """OPS by bin, and the length of a bin; the work of a block is spread evenly over its time."""
        replay = self.replay
        if span <= 0 or not len(replay.blocks):
            return [], 0.0
        column = replay.blocks.column
        attempts, seconds = column("attempts"), column("seconds")
        legs = np.array([attempt.leg.index for attempt in replay.attempts], dtype=np.int64)[attempts]
        begins = SpanAxis(replay.legs).of(legs, column("ends") - seconds)
        width = span / BINS
        with np.errstate(over="ignore", invalid="ignore"):  # nonsense in a journal is for `validate` to name
            examples = column("examples") / np.maximum(seconds, 1e-9)
            rates = np.array(self._prices, dtype=np.float64)[attempts] * examples
            first, last = (_bins(times, width) for times in (begins, begins + seconds))
            done = np.bincount(first, rates * seconds, BINS)
            apart = first < last  # few of the millions: a block is short
            begins, seconds, rates = begins[apart], seconds[apart], rates[apart]
            done -= np.bincount(first[apart], rates * seconds, BINS)
            edges = np.arange(BINS + 1) * width
            until = [float((rates * np.clip(edge - begins, 0.0, seconds)).sum()) for edge in edges]
            curve = np.nan_to_num((done + np.diff(until)) / width, nan=0.0, posinf=0.0, neginf=0.0)
        return np.maximum(curve, 0.0).tolist(), width


def _bins(times: NDArray[np.float64], width: float) -> NDArray[np.int64]:
    """The bins of these times; a time outside the span counts to the bin at its end."""
    found: NDArray[np.int64] = np.clip(np.nan_to_num(times / width), 0, BINS - 1).astype(np.int64)
    return found


def _state(replay: Replay, found: Shortfall | None, silent_seconds: float) -> str:
    """What the run does, or how it ended, in words."""
    if not replay.legs:
        return "starting"
    leg = replay.leg
    if leg.ended is not None:
        return f"{found.answer.value}: {found.text}" if found else f"ended: {leg.ended.reason}"
    if silent_seconds > LONGEST_SILENCE_SECONDS:
        return f"silent for {clock(silent_seconds)}: killed, or cut off from its disk; `resume` continues it"
    return "starting" if leg.released is None else "running"


def _left(replay: Replay) -> float | None:
    """Seconds that are left of a leg that goes on; None if they are not known."""
    if not replay.legs or replay.leg.ended is not None or replay.leg.released is None:
        return None
    leg = replay.leg
    if leg.deadline is not None:
        return max(0.0, leg.deadline - leg.last)
    most, done = replay.opened.config.limits.max_trials, len(replay.arrivals)
    if most and done:
        return max(0.0, (most - done) * replay.span_seconds / done)
    return None
