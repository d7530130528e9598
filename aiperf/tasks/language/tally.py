"""What is counted of predicted text: how many bits its bytes would take."""

from __future__ import annotations

from math import log

from aiperf.tasks.tally import TOLERATED_SHARE, Tally
from nas.frozen import frozen

UNIT = 1 << 20
"""Parts of a bit: a byte's −log2 p is rounded to a whole number of them, once, so that sums are exact."""
MOST_BITS = 64
"""The bits that one byte counts at most, also where its probability was 0."""
BITS_OF_A_BYTE = 8
LEAST_OF_VALIDATION = 0.75
"""The least share of the error in the best validation that an honest test of text with like parts has.

Measured on the bundled text: 0.91 to 0.96 for networks of 1.79 to 3.15 bits per byte, the better ones lower
(the searches of docs/searches.md), and 0.99 for one of 5.0. Counted models of orders 0 to 10 (the estimate of
benchmarks/text/marks.py) have at least 0.89 where the validation is any beginning of its part of 4,096 bytes
or more, and 0.82 from 64 bytes on. So the bound leaves more than twice the largest difference that was seen
there with this many bytes. Of 1,953 blocks of 4,096 bytes of generated text, the easiest has 0.86 times the
bits of the hardest, by counts of order 1 or 2.
"""
FEWEST_BYTES = 4_096
"""The fewest bytes of validation and of test that can convict: the mean over fewer depends on which they
are."""


@frozen
class Predicted(Tally):
    """Bytes of text, and how improbable each was: the error is the bits per byte, of eight."""

    __slots__ = ("bytes", "units")
    units: int
    """Sum of −log2 p over all bytes, in 2^−20 bit."""
    bytes: int
    """Predicted, over all examples."""

    @property
    def bits_per_byte(self) -> float:
        """The mean of −log2 p over all bytes; without bytes it is 8, for nothing is known."""
        return self.units / UNIT / self.bytes if self.bytes else float(BITS_OF_A_BYTE)

    @property
    def error(self) -> float:
        """The bits per byte, of eight: a text that is predicted worse than by chance counts as an error of
        1."""
        return min(1.0, self.unbounded)

    @property
    def unbounded(self) -> float:
        return self.bits_per_byte / BITS_OF_A_BYTE

    @property
    def logged_accuracy(self) -> float:
        """The logarithm of the perplexity in nats, which MLPerf has under this key for language."""
        return self.bits_per_byte * log(2)

    @property
    def floor(self) -> float:
        """Half a bit over all bytes."""
        return 1 / (2 * BITS_OF_A_BYTE * max(1, self.bytes))

    @property
    def floor_text(self) -> str:
        return f"1/(2 × {BITS_OF_A_BYTE * max(1, self.bytes):,} bits)"

    @property
    def asked(self) -> tuple[int, ...]:
        """The number of windows and of their bytes, which two tallies of the same examples have in common."""
        return self.of, self.bytes

    @property
    def is_possible(self) -> bool:
        """Whether no window is empty, and no byte has more bits than are counted."""
        return 0 <= self.of <= self.bytes and 0 <= self.units <= MOST_BITS * UNIT * self.bytes

    def agrees(self, recorded: Tally) -> bool:
        """Bits may differ by 0.2 %: products in 16 bits round by more than that, and seldom to one side."""
        if not isinstance(recorded, Predicted) or recorded.asked != self.asked:
            return False
        return abs(self.units - recorded.units) <= TOLERATED_SHARE * max(self.units, recorded.units)

    def too_good_after(self, validated: Tally) -> str:
        """Why a test is too good to be honest after this validation; empty if it is not."""
        too_low = isinstance(validated, Predicted) and self.error < LEAST_OF_VALIDATION * validated.error
        return f"less than {LEAST_OF_VALIDATION:g} times as much" if too_low else ""

    @property
    def can_convict(self) -> bool:
        """Whether there are enough bytes for `too_good_after` to be evidence."""
        return self.bytes >= FEWEST_BYTES

    def text(self) -> str:
        return f"{self.bits_per_byte:.4f} bits per byte, of {self.bytes:,} bytes"
