"""All work of a run in columns: blocks of steps first, then validations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.replay import Replay


@dataclass(frozen=True)
class Pieces:
    """Columns with one row per piece of work. Times are in seconds on the clock of its leg."""

    attempt: NDArray[np.int64]
    """Index of the attempt among all attempts of the run."""
    segment: NDArray[np.int64]
    group: NDArray[np.int64]
    leg: NDArray[np.int64]
    end: NDArray[np.float64]
    time: NDArray[np.float64]
    """Time of the line."""
    seconds: NDArray[np.float64]
    """Duration of the work."""
    steps: NDArray[np.int64]
    """Number of steps; for a validation, of batches."""
    examples: NDArray[np.int64]
    num_blocks: int
    """Number of rows at the beginning that are blocks; the rows after them are validations."""

    is_validation: NDArray[np.bool_]


_MADE: WeakKeyDictionary[Replay, tuple[int, Pieces]] = WeakKeyDictionary()
"""Columns of each replay with the number of lines at which they were made. Score and rules use the same
columns many times, and a long run has millions of rows."""


def pieces(replay: Replay) -> Pieces:
    """All work of a run. The batches of a validation are assumed to be as large as those of the training."""
    lines, made = _MADE.get(replay, (-1, None))
    if made is None or lines != replay.lines:
        made = _made(replay)
        _MADE[replay] = replay.lines, made
    return made


def _made(replay: Replay) -> Pieces:
    column, attempts = replay.blocks.column, replay.attempts
    closed = [validation for attempt in attempts for validation in attempt.validations]
    segments = [validation.segment for validation in closed]
    of_attempt = np.array([(a.group, a.leg.index) for a in attempts], dtype=np.int64).reshape(-1, 2)
    num_closed = np.array([len(attempt.validations) for attempt in attempts], dtype=np.int64)
    of_closed = np.repeat(np.arange(len(attempts)), num_closed)
    attempt = _joined(column("attempts"), of_closed)
    batch = np.array([max(1, a.trial.hyper.batch_size) for a in attempts], dtype=np.int64)[of_closed]
    examples = np.array([segment.tally.of for segment in segments], dtype=np.int64)
    num_blocks = len(replay.blocks)
    return Pieces(
        attempt=attempt,
        segment=_joined(column("segments"), [segment.index for segment in segments]),
        group=of_attempt[attempt, 0],
        leg=of_attempt[attempt, 1],
        end=_joined(column("ends"), [validation.end for validation in closed]),
        time=_joined(column("times"), [validation.t for validation in closed]),
        seconds=_joined(column("seconds"), [segment.validate_seconds for segment in segments]),
        steps=_joined(column("steps"), -(-examples // batch)),
        examples=_joined(column("examples"), examples),
        num_blocks=num_blocks,
        is_validation=np.arange(len(attempt)) >= num_blocks,
    )


def _joined(column: NDArray[Any], values: list[Any] | NDArray[Any]) -> NDArray[Any]:
    joined = np.concatenate([column, np.array(values, dtype=column.dtype)])
    joined.setflags(write=False)  # because it is shared by all callers of `pieces`
    return joined
