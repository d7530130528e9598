"""The credited work of a run: a segment is credited as a whole, once, if its validation is in time.

Raw work is every step that was made; goodput is the credited part. The time is not changed here: it is the
span, whatever was done in it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.attempts import Attempt, Validation
from aiperf.journal.columns import sums_of
from aiperf.journal.replay import Replay
from aiperf.score.example_counts import Counted
from nas.frozen import frozen
from nas.ops import OPS, TENSOR_OPS, Ops


@frozen
class Credit:
    """The credited segments of a run, and the blocks that belong to them."""

    validations: NDArray[np.bool_]
    """Whether each segment is credited that a validation closed: those of the first attempt, then those of
    the second, as in `pieces`."""
    blocks: NDArray[np.bool_]
    """Whether each row of `Replay.blocks` belongs to a credited segment."""
    first: NDArray[np.int64]
    """For each attempt, the place of its first segment in `validations`."""

    @property
    def any(self) -> bool:
        return bool(self.validations.any())

    @property
    def pieces(self) -> NDArray[np.bool_]:
        """Whether each row of `pieces` is credited."""
        return np.concatenate([self.blocks, self.validations])

    def has(self, attempt: Attempt, validation: Validation) -> bool:
        """Whether the segment that this validation closed is credited."""
        return bool(self.validations[self.first[attempt.index] + validation.segment.index])

    def sums(self, replay: Replay, name: str) -> list[int]:
        """Sums of a column of whole numbers over the credited validations of each attempt."""
        attempts, values = map(replay.validations.ordered, ("attempt", name))
        return sums_of(len(replay.attempts), attempts[self.validations], values[self.validations])


@frozen
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
    found, attempts, legs = replay.pieces(), replay.attempts, replay.legs
    closed = slice(found.num_blocks, None)
    attempt, segment, leg = found.attempt[closed], found.segment[closed], found.leg[closed]
    skipped = replay.validations.ordered("skipped")
    ends = np.array([-np.inf if one.released is None else one.end for one in legs])
    num_closed = np.array([each.num_closed for each in attempts], dtype=np.int64)
    totals = replay.totals()  # with a place for the open segment of each attempt, too
    place = totals.first[attempt] + segment
    lost = np.zeros(int(totals.first[-1]), dtype=np.bool_)
    lost[replay.blocks.places(totals.first)[replay.blocks.column("finite") == 0]] = True
    good = (found.end[closed] <= ends[leg]) & (skipped == 0) & ~lost[place]
    # The same segment of another attempt has the same key.
    number = {each.trial.number: each.index for each in reversed(attempts)}
    trial = np.array([number[each.trial.number] for each in attempts], dtype=np.int64)[attempt]
    key = trial * (int(num_closed.max(initial=0)) + 1) + segment
    (candidates,) = np.nonzero(good)
    _, earliest = np.unique(key[candidates], return_index=True)
    credited = np.zeros(len(attempt), dtype=np.bool_)
    credited[candidates[earliest]] = True
    places = np.zeros(len(lost), dtype=np.bool_)
    places[place[credited]] = True
    blocks: NDArray[np.bool_] = places[replay.blocks.places(totals.first)]
    return Credit(credited, blocks, np.cumsum(num_closed) - num_closed)


def work(replay: Replay, counts: Mapping[int, Counted], credit: Credit | None = None) -> Work:
    """All work of a run, or with `credit` the credited part. A trial without counts adds none."""
    number, found, blocks = len(replay.attempts), replay.pieces(), replay.blocks.rows
    closed = slice(found.num_blocks, None)
    validated = found.attempt[closed], found.examples[closed]
    if credit is not None:
        blocks = blocks[credit.blocks]
        validated = validated[0][credit.validations], validated[1][credit.validations]
    examples, asked = sums_of(number, blocks["attempts"], blocks["examples"]), sums_of(number, *validated)
    mac = add = mul = div = sqrt = exp = cmp = 0  # whole numbers without a limit, which arrays do not have
    for attempt, trained, of in zip(replay.attempts, examples, asked):
        counted = counts.get(attempt.trial.number)
        if counted is not None:
            forward, backward, evaluate = counted.forward, counted.backward, counted.evaluate
            mac += (forward.mac + backward.mac) * trained + evaluate.mac * of
            add += (forward.add + backward.add) * trained + evaluate.add * of
            mul += (forward.mul + backward.mul) * trained + evaluate.mul * of
            div += (forward.div + backward.div) * trained + evaluate.div * of
            sqrt += (forward.sqrt + backward.sqrt) * trained + evaluate.sqrt * of
            exp += (forward.exp + backward.exp) * trained + evaluate.exp * of
            cmp += (forward.cmp + backward.cmp) * trained + evaluate.cmp * of
    kinds = Ops(mac, add, mul, div, sqrt, exp, cmp)
    return Work(
        kinds=kinds,
        operations=kinds.price(OPS),
        tensor_operations=kinds.price(TENSOR_OPS),
        steps=int(blocks["steps"].sum()),
        trained_examples=sum(examples),
        validated_examples=sum(asked),
        segments=len(validated[0]),
    )
