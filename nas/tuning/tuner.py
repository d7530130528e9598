"""The interface of a tuner, and what is the same for all."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib.util import find_spec

from nas.tuning.space import Point, Space

KEPT = 0.5
"""A child keeps each of its parent's hyper-parameters with this probability: so what was good for a
lineage stays in it, and selection works on it as on the architecture."""
DIGITS = 6  # of a proposal, that count: people read it, and a factor that is taken out again must vanish

Values = Mapping[str, float]
"""Values of a point, by the names that the space has."""


class Tuner:
    """Proposes hyper-parameters from the reported losses and from the trials that are still running.

    A proposal follows from the random seed, the trial's number and what was dispatched, told and dropped
    before, in that order: so a run is continued, and its proposals are made again, from its journal.
    """

    library = ""
    """Library that it needs; empty for none."""

    def __init__(self, random_seed: int, space: Space) -> None:
        """Raises ModuleNotFoundError where the library is not installed."""
        self.random_seed, self.space = random_seed, space
        self.num_told = 0
        self._running: dict[int, Point] = {}

    def ask(self, number: int, start: Point) -> Point:
        """A proposal for the trial of that number, whose parent had `start`. It counts once it is
        dispatched."""
        # Seeded by text: equal on every machine and far apart for neighbours.
        rng = random.Random(f"{self.random_seed} hyper-parameters of {number}")
        proposed = self._proposal(rng.getrandbits(32))
        kept = {field.name for field in fields(Point) if rng.random() < KEPT}
        taken = {name: _rounded(value) for name, value in proposed.items() if name not in kept}
        return replace(start, **taken)

    def dispatched(self, number: int, point: Point) -> None:
        """The trial is running with these."""
        if number in self._running:
            raise ValueError(f"trial {number} is dispatched for the second time")
        self._running[number] = point
        self._began(number, self._within(point))

    def tell(self, number: int, point: Point, loss: float) -> None:
        """The trial ended with these, which may have been changed since; the lower the loss the better.

        Raises ValueError for a loss that is not a number: it has no place among the others.
        """
        if not math.isfinite(loss):
            raise ValueError(f"trial {number} has the loss {loss}, which is not a number")
        self._take(number)
        self.num_told += 1
        self._ended(number, self._within(point), loss)

    def drop(self, number: int) -> None:
        """It ended without a loss."""
        self._take(number)
        self._forgotten(number)

    def _take(self, number: int) -> None:
        if self._running.pop(number, None) is None:
            raise ValueError(f"trial {number} ends, but it is not running")

    def _within(self, point: Point) -> Values:
        """The values of a point, moved into the space if they are outside: no library takes others."""
        return {name: dimension.nearest(getattr(point, name)) for name, dimension in self.space.items()}

    def _proposal(self, random_seed: int) -> Values:
        """Values for the whole space; the same after the same calls and for the same seed."""
        raise NotImplementedError

    # What a library learns of a trial; its values lie within the space.

    def _began(self, number: int, values: Values) -> None:
        pass

    def _ended(self, number: int, values: Values, loss: float) -> None:
        pass

    def _forgotten(self, number: int) -> None:
        pass


class Untuned(Tuner):
    """No tuning: a child has its parent's hyper-parameters."""

    def ask(self, number: int, start: Point) -> Point:
        return start


def installed(library: str) -> bool:
    """Whether a library can be imported; it is not imported for this."""
    return not library or find_spec(library) is not None


def _rounded(value: float) -> float:
    """The value, rounded to the digits that matter."""
    return float(f"{value:.{DIGITS}g}")
