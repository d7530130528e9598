"""What a layer, a fork and the loss add to the table of operations, as objects that architectures share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from math import prod

from nas.head import Head
from nas.layers import Shape
from nas.ops import OPS, Cost, Ops

Counts = tuple[int, ...]
"""Operations by pass and by kind, in the order of the fields of `Cost` and of `Ops`."""
PASSES = tuple(each.name for each in fields(Cost))
KINDS = len(fields(Ops))
NUM_COUNTS = len(PASSES) * KINDS
"""Length of `Counts`."""


def cost_of(counts: Iterable[int]) -> Cost:
    """The cost of these numbers, in the order of `Counts`. To add columns of numbers takes a sixth of the
    time of adding hundreds of `Cost`, each of four new objects."""
    each = list(counts)
    return Cost(*[Ops(*each[first : first + KINDS]) for first in range(0, len(each), KINDS)])


@dataclass(frozen=True, eq=False)
class Charge:
    """Lines of the table of operations; one object wherever the same is charged again."""

    rows: tuple[tuple[str, Cost], ...]

    @cached_property
    def counts(self) -> tuple[tuple[str, Counts], ...]:
        return tuple(
            (name, tuple(kind for one in PASSES for kind in getattr(cost, one).kinds))
            for name, cost in self.rows
        )

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """The numbers in `counts` that are not 0, which are few, with their places."""
        return tuple(
            (place, count) for _, counts in self.counts for place, count in enumerate(counts) if count
        )

    @cached_property
    def train_price(self) -> int:
        return sum(cost.train.price(OPS) for _, cost in self.rows)


@lru_cache(maxsize=1 << 10)
def fork(sums: int, shape: Shape) -> Charge:
    """A tensor with `sums` + 1 readers gathers as many gradients."""
    return Charge((("grad_accum", Cost(input_grad=Ops(add=sums * prod(shape)))),))


@lru_cache(maxsize=1 << 4)
def loss(head: Head, output: Shape) -> Charge:
    return Charge((("softmax_xent", head.loss(output)),))
