"""All work of a run in columns, because a long run has millions of blocks of steps and of validations."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.events import BlockRow, ClosedRow
from aiperf.tasks.tally import Tally

WHOLE, REAL, FLAG = "q", "d", "?"
"""Kinds of columns: 64-bit whole numbers, doubles, and true or false, as `struct` and numpy call them."""
KINDS = {int: WHOLE, float: REAL, bool: FLAG}


@dataclass(frozen=True)
class Totals:
    """Sums over the blocks of each segment. The place of segment `s` of attempt `a` is `first[a] + s`."""

    first: NDArray[np.int64]
    steps: NDArray[np.int64]
    examples: NDArray[np.int64]
    seconds: NDArray[np.float64]


@dataclass
class PackedRows:
    """Rows of numbers, packed one after the other: a third of the memory of an object for each."""

    COLUMNS: ClassVar[Mapping[str, str]]
    """Names of the columns, and their kinds."""
    _row: ClassVar[struct.Struct]
    _type: ClassVar[np.dtype[Any]]
    _packed: bytearray = field(default_factory=bytearray)

    def __init_subclass__(cls) -> None:
        cls._row = struct.Struct("=" + "".join(cls.COLUMNS.values()))
        cls._type = np.dtype(list(cls.COLUMNS.items()))

    def __len__(self) -> int:
        return len(self._packed) // self._row.size

    @property
    def rows(self) -> NDArray[Any]:
        """All rows as they are held. No row can be appended as long as somebody keeps them."""
        rows: NDArray[Any] = np.frombuffer(self._packed, self._type)
        return rows

    def column(self, name: str) -> NDArray[Any]:
        """A copy of a column, which later rows do not change."""
        column: NDArray[Any] = self.rows[name].copy()
        return column


class Blocks(PackedRows):
    """One row per `Stepped` line, in the order of the journal."""

    COLUMNS: ClassVar = {
        "attempts": WHOLE,  # index of the attempt among all attempts of the run
        "segments": WHOLE,
        "steps": WHOLE,
        "examples": WHOLE,
        "seconds": REAL,
        "ends": REAL,  # times in seconds of the leg at which the blocks ended
        "times": REAL,  # and at which the lines were written
        "finite": FLAG,  # whether the loss was finite
    }

    def append(self, attempt: int, t: float, row: BlockRow) -> None:
        _, _, segment, steps, examples, seconds, loss, end = row
        finite = loss is not None
        self._packed += self._row.pack(attempt, segment, steps, examples, seconds, end, t, finite)

    def totals(self, num_segments: Sequence[int]) -> Totals:
        """Sums over the blocks of each segment. `num_segments` is the number of segments of each attempt,
        open ones included."""
        first = np.concatenate([[0], np.cumsum(num_segments)]).astype(np.int64)
        places = self.places(first)

        def summed(name: str) -> NDArray[Any]:  # exact: doubles hold whole numbers below 2^53
            return np.bincount(places, weights=self.column(name), minlength=int(first[-1]))

        steps, examples = summed("steps").astype(np.int64), summed("examples").astype(np.int64)
        return Totals(first, steps, examples, summed("seconds"))

    def places(self, first: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place of the segment of each block (`Totals`)."""
        places: NDArray[np.int64] = first[self.column("attempts")] + self.column("segments")
        return places


class ValidationRow(NamedTuple):
    """The numbers of a validation."""

    attempt: int
    """Index of the attempt among all attempts of the run."""
    segment: int
    """Index within the attempt."""
    steps: int
    train_examples: int
    train_seconds: float
    of: int
    """Number of validation examples."""
    validate_seconds: float
    skipped: int
    end: float
    t: float
    in_time: bool
    unbounded: float
    """Error by which the best one is chosen."""


_NAMED = partial(tuple.__new__, ValidationRow)
"""As `ValidationRow._make`, without a call of Python for each of millions of rows."""


@dataclass
class Validations(PackedRows):
    """One row per `Closed` line, in the order of the journal, and what is no number of it in lists."""

    COLUMNS: ClassVar = {name: KINDS[kind] for name, kind in get_type_hints(ValidationRow).items()}
    tallies: list[Tally] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    """Hashes over the logs of the groups (`Closed.logs`)."""
    _order: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64), compare=False)

    def append(self, attempt: int, t: float, row: ClosedRow, in_time: bool) -> None:
        _, _, segment, steps, examples, trained, tally, took, skipped, end, logs = row
        own, end_t = (attempt, segment, steps, examples, trained), (end, t, in_time, tally.unbounded)
        self._packed += self._row.pack(*own, tally.of, took, skipped, *end_t)
        self.tallies.append(tally)
        self.logs.append(logs)

    def row(self, place: int) -> ValidationRow:
        """The numbers of the validation of this line, counted from 0."""
        return _NAMED(self._row.unpack_from(self._packed, place * self._row.size))

    @property
    def by_attempt(self) -> NDArray[np.int64]:
        """The places of all rows in another order: those of the first attempt before those of the second."""
        if len(self._order) != len(self):
            self._order = np.argsort(self.column("attempt"), kind="stable")
        return self._order

    def ordered(self, name: str) -> NDArray[Any]:
        """A copy of a column in the order of `by_attempt`."""
        ordered: NDArray[Any] = self.rows[name][self.by_attempt]
        return ordered


@dataclass(frozen=True)
class Pieces:
    """Columns with one row per piece of work: blocks of steps first, then validations, those of the first
    attempt before those of the second. Times are in seconds on the clock of its leg.

    A column is made each time it is asked for, in milliseconds for a million rows: all together would take a
    fifth of the memory of a long run. So ask once for a column, not for each row.
    """

    blocks: Blocks
    validations: Validations
    group_of: NDArray[np.int64]
    """The group of each attempt; likewise its leg and its batch size."""
    leg_of: NDArray[np.int64]
    batch_of: NDArray[np.int64]

    @property
    def num_blocks(self) -> int:
        """Number of rows at the beginning that are blocks; the rows after them are validations."""
        return len(self.blocks)

    @property
    def is_validation(self) -> NDArray[np.bool_]:
        return np.arange(len(self.blocks) + len(self.validations)) >= self.num_blocks

    @property
    def attempt(self) -> NDArray[np.int64]:
        """Index of the attempt among all attempts of the run."""
        return self._joined("attempts", "attempt")

    @property
    def segment(self) -> NDArray[np.int64]:
        return self._joined("segments", "segment")

    @property
    def group(self) -> NDArray[np.int64]:
        return self.group_of[self.attempt]

    @property
    def leg(self) -> NDArray[np.int64]:
        return self.leg_of[self.attempt]

    @property
    def end(self) -> NDArray[np.float64]:
        return self._joined("ends", "end")

    @property
    def time(self) -> NDArray[np.float64]:
        """Time of the line."""
        return self._joined("times", "t")

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Duration of the work."""
        return self._joined("seconds", "validate_seconds")

    @property
    def examples(self) -> NDArray[np.int64]:
        return self._joined("examples", "of")

    @property
    def steps(self) -> NDArray[np.int64]:
        """Number of steps; for a validation, of batches as large as those of the training."""
        closed = self.validations
        batches = -(-closed.ordered("of") // self.batch_of[closed.ordered("attempt")])
        return np.concatenate([self.blocks.rows["steps"], batches])

    def _joined(self, of_blocks: str, of_validations: str) -> NDArray[Any]:
        return np.concatenate([self.blocks.rows[of_blocks], self.validations.ordered(of_validations)])


def sums_of(num_attempts: int, attempts: NDArray[np.int64], values: NDArray[np.int64]) -> list[int]:
    """Sums of whole numbers by attempt; exact, as doubles hold whole numbers below 2^53."""
    return [int(each) for each in np.bincount(attempts, weights=values, minlength=num_attempts)]
