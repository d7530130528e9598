"""All work of a run in columns, because a long run has millions of blocks of steps and of validations."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import nan
from typing import Any, ClassVar, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from aiperf.journal.events import BlockRow, ClosedRow
from aiperf.tasks.tally import Tally
from nas.frozen import frozen

WHOLE, INDEX, REAL, FLAG = "q", "i", "d", "?"
"""Kinds of columns: whole numbers of 64 bits, places of what has a line of its own, doubles, and true or
false, as `struct` and numpy call them."""
KINDS = {int: WHOLE, float: REAL, bool: FLAG}


@frozen
class Totals:
    """Sums over the blocks of each segment. The place of segment `s` of attempt `a` is `first[a] + s`."""

    first: NDArray[np.int64]
    steps: NDArray[np.int64]
    examples: NDArray[np.int64]
    seconds: NDArray[np.float64]


@frozen
class Worked:
    """Sums over all blocks of each attempt, credited or not."""

    examples: NDArray[np.int64]
    seconds: NDArray[np.float64]


@dataclass
class PackedRows:
    """Rows of numbers, packed one after the other: a third of the memory of an object for each."""

    COLUMNS: ClassVar[Mapping[str, str]]
    """Names of the columns, and their kinds."""
    _row: ClassVar[struct.Struct]
    _cells: ClassVar[Mapping[str, tuple[struct.Struct, int]]]
    """By column, how its value is packed, and where in a row it begins."""
    _type: ClassVar[np.dtype[Any]]
    _packed: bytearray = field(default_factory=bytearray)

    def __init_subclass__(cls) -> None:
        kinds = "".join(cls.COLUMNS.values())
        cls._row = struct.Struct(f"={kinds}")
        begins = (struct.calcsize(f"={kinds[:place]}") for place in range(len(kinds)))
        cls._cells = {
            name: (struct.Struct(f"={kind}"), begin)
            for (name, kind), begin in zip(cls.COLUMNS.items(), begins)
        }
        cls._type = np.dtype(list(cls.COLUMNS.items()))

    def __len__(self) -> int:
        return len(self._packed) // self._row.size

    def value(self, place: int, name: str) -> Any:
        """One value of the row with this number."""
        cell, begin = self._cells[name]
        return cell.unpack_from(self._packed, place * self._row.size + begin)[0]

    @property
    def rows(self) -> NDArray[Any]:
        """All rows as they are held. No row can be appended as long as somebody keeps them."""
        rows: NDArray[Any] = np.frombuffer(self._packed, self._type)
        return rows

    def column(self, name: str) -> NDArray[Any]:
        """A copy of a column, which later rows do not change. To work on it takes a fraction of the time that
        it takes on packed rows, whose values are not aligned."""
        column: NDArray[Any] = self.rows[name].copy()
        return column


@dataclass
class Digests:
    """Texts of which nearly all are SHA-256 in hexadecimal digits, or empty: 32 bytes each instead of 113."""

    _packed: bytearray = field(default_factory=bytearray)
    _others: dict[int, str] = field(default_factory=dict)
    """The texts by place that are neither."""

    def __len__(self) -> int:
        return len(self._packed) // DIGEST_BYTES

    def __getitem__(self, place: int) -> str:
        if place in self._others:
            return self._others[place]
        if not 0 <= place < len(self):
            raise IndexError(place)
        digest = self._packed[place * DIGEST_BYTES : (place + 1) * DIGEST_BYTES]
        return "" if digest == NO_DIGEST else digest.hex()

    def __setitem__(self, place: int, text: str) -> None:
        digest = _digest(text)
        self._packed[place * DIGEST_BYTES : (place + 1) * DIGEST_BYTES] = digest
        self._others.pop(place, None)
        if text and digest == NO_DIGEST:
            self._others[place] = text

    def append(self, text: str) -> None:
        self._packed += NO_DIGEST
        if text:
            self[len(self) - 1] = text

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether each text is not empty."""
        packed = np.frombuffer(self._packed, np.uint8).reshape(-1, DIGEST_BYTES)
        known: NDArray[np.bool_] = np.any(packed != 0, axis=1)
        known[list(self._others)] = True
        return known


DIGEST_BYTES = 32
NO_DIGEST = bytes(DIGEST_BYTES)
"""Stands for a text that is no digest, and for that of zeros, which no file has."""


def _digest(text: str) -> bytes:
    """The bytes that a text states in hexadecimal digits as Python writes them; else NO_DIGEST."""
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        return NO_DIGEST
    return digest if len(digest) == DIGEST_BYTES and digest.hex() == text else NO_DIGEST


class Blocks(PackedRows):
    """One row per `Stepped` line, in the order of the journal."""

    COLUMNS: ClassVar = {
        "attempts": INDEX,  # among all attempts of the run
        "segments": INDEX,
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
        summed = partial(self._summed, self.places(first), int(first[-1]))
        steps, examples = summed("steps").astype(np.int64), summed("examples").astype(np.int64)
        return Totals(first, steps, examples, summed("seconds"))

    def worked(self, num_attempts: int) -> Worked:
        """Sums over the blocks of each attempt."""
        summed = partial(self._summed, self.column("attempts"), num_attempts)
        return Worked(summed("examples").astype(np.int64), summed("seconds"))

    def _summed(self, places: NDArray[Any], number: int, name: str) -> NDArray[Any]:
        """Sums of a column by place; exact, as doubles hold whole numbers below 2^53."""
        return np.bincount(places, weights=self.column(name), minlength=number)

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

    COLUMNS: ClassVar = {
        **{name: KINDS[kind] for name, kind in get_type_hints(ValidationRow).items()},
        **dict.fromkeys(("attempt", "segment"), INDEX),
    }
    tallies: list[Tally] = field(default_factory=list)
    logs: Digests = field(default_factory=Digests)
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
        ordered: NDArray[Any] = self.column(name)[self.by_attempt]
        return ordered


@frozen
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
        return np.concatenate([self.blocks.column("steps"), batches])

    def _joined(self, of_blocks: str, of_validations: str) -> NDArray[Any]:
        return np.concatenate([self.blocks.column(of_blocks), self.validations.ordered(of_validations)])


class AttemptRow(NamedTuple):
    """What few readers ask of an attempt. Times are in seconds of its leg, and not a number until they are
    known."""

    dispatch_time: float
    begin_time: float
    prepare_seconds: float
    end_time: float
    age_seconds: float
    end_line: int


_BEGAN, _ENDED = struct.Struct("=dd"), struct.Struct("=ddq")
"""Neighbouring values of an `AttemptRow` that become known together."""


@dataclass
class AttemptRows(PackedRows):
    """One row per attempt, in the order of their dispatch."""

    COLUMNS: ClassVar = {name: KINDS[kind] for name, kind in get_type_hints(AttemptRow).items()}
    weights: Digests = field(default_factory=Digests)

    @property
    def each(self) -> Iterator[AttemptRow]:
        """All rows, one after the other: to ask each attempt for its values takes five times as long."""
        return map(AttemptRow._make, self._row.iter_unpack(self._packed))

    def append(self, dispatch_time: float) -> None:
        self._packed += self._row.pack(*AttemptRow(dispatch_time, nan, 0.0, nan, 0.0, 0))
        self.weights.append("")

    def began(self, place: int, begin_time: float, prepare_seconds: float) -> None:
        begin = place * self._row.size + self._cells["begin_time"][1]
        _BEGAN.pack_into(self._packed, begin, begin_time, prepare_seconds)

    def ended(self, place: int, end_time: float, age_seconds: float, end_line: int, weights: str) -> None:
        begin = place * self._row.size + self._cells["end_time"][1]
        _ENDED.pack_into(self._packed, begin, end_time, age_seconds, end_line)
        if weights:
            self.weights[place] = weights

    def time(self, place: int, name: str) -> float | None:
        """A time; None until it is known."""
        time: float = self.value(place, name)
        return None if time != time else time


def sums_of(num_attempts: int, attempts: NDArray[np.int64], values: NDArray[np.int64]) -> list[int]:
    """Sums of whole numbers by attempt; exact, as doubles hold whole numbers below 2^53."""
    return [int(each) for each in np.bincount(attempts, weights=values, minlength=num_attempts)]
