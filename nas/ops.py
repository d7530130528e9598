"""Counts of arithmetic operations by kind, and the price lists that turn a count into one number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import cached_property
from operator import add, mul
from typing import NamedTuple

from nas.frozen import frozen


class Ops(NamedTuple):
    """A vector of exact integers, one for each kind of operation.

    `exp` includes logarithms. A price list is another `Ops`; a price is the dot product of the two.
    """

    mac: int = 0
    add: int = 0
    mul: int = 0
    div: int = 0
    sqrt: int = 0
    exp: int = 0
    cmp: int = 0

    def __add__(self, other: Ops) -> Ops:  # type: ignore[override]
        return Ops(*map(add, self, other))

    def __mul__(self, times: int) -> Ops:  # type: ignore[override]
        return Ops(*[number * times for number in self])

    def price(self, prices: Ops) -> int:
        """Operations, each kind weighed by its price."""
        return sum(map(mul, self, prices))


NONE = Ops()
# Ren et al., "AIPerf", Big Data Mining and Analytics 4(3), 2021: the price list of the score.
OPS = Ops(mac=2, add=1, mul=1, div=4, sqrt=4, exp=8, cmp=1)
# The numerator of MLPerf's "utilization": what matrix units do. Only this one over the peak is an MFU.
TENSOR_OPS = Ops(mac=2)


@frozen
class Cost:
    """Operations for one example: forward, the two halves of backward, and validation."""

    forward: Ops = NONE
    input_grad: Ops = NONE
    weight_grad: Ops = NONE
    evaluate: Ops = NONE

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.forward + other.forward,
            self.input_grad + other.input_grad,
            self.weight_grad + other.weight_grad,
            self.evaluate + other.evaluate,
        )

    @property
    def backward(self) -> Ops:
        """Both halves: the gradient of the input, which may not be needed, and that of the weights."""
        return self.input_grad + self.weight_grad

    @property
    def train(self) -> Ops:
        """One training example: forward and backward."""
        return self.forward + self.backward


Counts = tuple[int, ...]
"""Operations by pass and by kind, in the order of the fields of `Cost` and of `Ops`."""
PASSES = tuple(each.name for each in fields(Cost))
KINDS = len(Ops._fields)
NUM_COUNTS = len(PASSES) * KINDS
"""Length of `Counts`."""


def cost_of(counts: Iterable[int]) -> Cost:
    """The cost of these numbers, in the order of `Counts`. To add columns of numbers takes a sixth of the
    time of adding hundreds of `Cost`, each of four new objects."""
    each = list(counts)
    return Cost(*[Ops(*each[first : first + KINDS]) for first in range(0, len(each), KINDS)])


@frozen(eq=False)
class Charge:
    """Lines of the table of operations; one object wherever the same is charged again."""

    rows: tuple[tuple[str, Cost], ...]

    @cached_property
    def counts(self) -> tuple[tuple[str, Counts], ...]:
        """Each line in numbers, in the order of `Counts`."""
        return tuple(
            (name, tuple(kind for one in PASSES for kind in getattr(cost, one))) for name, cost in self.rows
        )

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """The numbers in `counts` that are not 0, which are few, with their places."""
        return tuple(
            (place, count) for _, counts in self.counts for place, count in enumerate(counts) if count
        )

    @cached_property
    def prices(self) -> tuple[tuple[str, int, int], ...]:
        """OPS of one training example and of one of validation, by line."""
        return tuple((name, cost.train.price(OPS), cost.evaluate.price(OPS)) for name, cost in self.rows)

    @cached_property
    def train_price(self) -> int:
        """OPS of one training example."""
        return sum(train for _, train, _ in self.prices)
