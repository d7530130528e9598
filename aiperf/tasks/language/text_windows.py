"""A text divided by position and cut into windows: how many there are in each part.

A window of T has T symbols and T bytes to be predicted, each the one after its symbol: T + 1 bytes that
follow one another, all of one part. Adjoining windows share one byte: the last that one of them predicts is
the first symbol of the next. So each byte of a part is predicted at most once, and its first one never.
"""

from __future__ import annotations

from collections.abc import Mapping

from nas.frozen import frozen

VALIDATION_FROM, TEST_FROM, WHOLE = 90, 95, 100
"""Where the parts begin, in hundredths of the bytes: as enwik8 and enwik9 are customarily divided."""


@frozen
class TextWindows:
    """The windows of `size` bytes into which a text of this many bytes is cut."""

    bytes: int
    size: int

    @property
    def parts(self) -> tuple[range, range, range]:
        """The bytes of training, validation and test."""
        first, second = (self.bytes * share // WHOLE for share in (VALIDATION_FROM, TEST_FROM))
        return range(first), range(first, second), range(second, self.bytes)

    @property
    def training(self) -> int:
        """Windows in a pass of training, wherever below `size` it begins: with each start there are as
        many."""
        return max(0, len(self.parts[0]) // self.size - 1)

    @property
    def validation(self) -> int:
        """Windows of the validation part."""
        return self._adjoining(self.parts[1])

    @property
    def test(self) -> int:
        """Windows of the test part."""
        return self._adjoining(self.parts[2])

    @property
    def official_training(self) -> int:
        """All windows before the test part."""
        return self.training + self.validation

    @property
    def longest(self) -> int:
        """The longest windows that this text could have in each part; below 1 none."""
        return min(map(len, self.parts)) - 1

    def enough_bytes(self, training: int = 1, validation: int = 1) -> int:
        """Bytes of a text whose training and validation have these numbers of windows, and its test one.
        Validation and test are a twentieth of it each."""
        passed = -(-(training + 1) * self.size * WHOLE // VALIDATION_FROM)
        return max(passed, WHOLE // (WHOLE - TEST_FROM) * (validation * self.size + 1))

    def to_lower(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """The largest values with which this text fits, by key of `data`, for those that are too large; empty
        if it is too short for any window. `wanted` has the windows of parts, as `training_examples`."""
        lower, fitting = dict[str, int](), self
        if self.longest < self.size:
            if self.longest < 2:
                return {}
            lower["size"] = 1 << self.longest.bit_length() - 1  # a power of two, as windows usually are
            fitting = TextWindows(self.bytes, lower["size"])
        counts = {"training_examples": fitting.training, "validation_examples": fitting.validation}
        return lower | {key: counts[key] for key, number in wanted.items() if number > counts[key]}

    def left_out(self, windows: int) -> int:
        """Bytes that belong to no window, where the three parts together have this many windows."""
        return self.bytes - windows * self.size - len(self.parts)

    def _adjoining(self, part: range) -> int:
        """Windows that fit into a part if each begins at the last byte of the one before."""
        return max(0, (len(part) - 1) // self.size)
