"""The credited work of a run: a segment is credited as a whole, once, if its validation is in time.

Raw work is every step that was made; goodput is the credited part. The time is not changed here: it is the
span, whatever was done in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.attempts import Attempt, Validation
from aiperf.journal.replay import Replay
from aiperf.score.example_counts import Counted
from nas.ops import OPS, TENSOR_OPS, Ops


@dataclass(frozen=True)
class Credit:
    """The credited segments of a run, and the blocks that belong to them."""

    segments: frozenset[tuple[int, int]]
    """Credited segments, as pairs of the index of the attempt and the index of the segment in it."""
    blocks: NDArray[np.bool_]
    """Whether each row of `Replay.blocks` belongs to a credited segment."""

    def has(self, attempt: Attempt, validation: Validation) -> bool:
        return (attempt.index, validation.segment.index) in self.segments


@dataclass(frozen=True)
class Work:
    """An amount of work."""

    kinds: Ops
    """Numbers of operations by kind, before they are weighted."""
    operations: int
    """Operations with the weights of the score (`nas.ops.OPS`)."""
    tensor_operations: int
    """Operations of products only: two for each multiply-accumulate (`nas.ops.TENSOR_OPS`)."""
    steps: int
    trained_examples: int
    validated_examples: int
    segments: int


def credit(replay: Replay) -> Credit:
    """The credit of a run. A segment is credited if it was validated within the span and every step of it was
    applied. If it was trained again after a retry or a resume, only the first time is credited."""
    not_applied = _segments_with_lost_steps(replay)
    segments: set[tuple[int, int]] = set()
    known: set[tuple[int, int]] = set()
    for attempt in replay.attempts:
        for validation in attempt.validations:
            segment = validation.segment
            place, key = (attempt.index, segment.index), (segment.trial, segment.index)
            in_span = attempt.leg.released is not None and validation.end <= attempt.leg.end
            if in_span and not segment.skipped and place not in not_applied and key not in known:
                segments.add(place)
                known.add(key)
    return Credit(frozenset(segments), _of_blocks(replay, segments))


def work(replay: Replay, counts: Mapping[int, Counted], credit: Credit | None = None) -> Work:
    """All work of a run, or with `credit` the credited part. A trial without counts adds none."""
    column = replay.blocks.column
    chosen = slice(None) if credit is None else credit.blocks
    examples = _by_attempt(replay, column("examples")[chosen], chosen)
    kinds, trained, validated, segments = Ops(), 0, 0, 0
    for attempt in replay.attempts:
        counted = counts.get(attempt.trial.number)
        closed = [v for v in attempt.validations if credit is None or credit.has(attempt, v)]
        of = sum(validation.segment.of for validation in closed)
        if counted is not None:
            kinds += counted.train * examples[attempt.index] + counted.evaluate * of
        trained += examples[attempt.index]
        validated += of
        segments += len(closed)
    return Work(
        kinds=kinds,
        operations=kinds.price(OPS),
        tensor_operations=kinds.price(TENSOR_OPS),
        steps=int(column("steps")[chosen].sum()),
        trained_examples=trained,
        validated_examples=validated,
        segments=segments,
    )


def _by_attempt(replay: Replay, values: NDArray[Any], chosen: Any) -> list[int]:
    """Sums of block values; exact, as doubles hold whole numbers below 2^53."""
    attempts = replay.blocks.column("attempts")[chosen]
    sums = np.bincount(attempts, weights=values, minlength=len(replay.attempts))
    return [int(value) for value in sums]


def _segments_with_lost_steps(replay: Replay) -> set[tuple[int, int]]:
    column = replay.blocks.column
    (lost,) = np.nonzero(column("finite") == 0)
    return set(zip(column("attempts")[lost].tolist(), column("segments")[lost].tolist()))


def _of_blocks(replay: Replay, segments: set[tuple[int, int]]) -> NDArray[np.bool_]:
    first = replay.totals().first
    credited = np.zeros(int(first[-1]), dtype=np.bool_)
    for attempt, segment in segments:
        credited[first[attempt] + segment] = True
    found: NDArray[np.bool_] = credited[replay.blocks.places(first)]
    return found
