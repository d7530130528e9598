"""Sums over the ranks of a group are exact, and no kind is taken for another."""

from __future__ import annotations

from aiperf.tasks.images.tally import Classified
from aiperf.tasks.language.tally import MOST_BITS, UNIT, Predicted
from aiperf.tasks.tally import Tally, tally_of
from nas.record import decode, encode
from tests.tables import ComesTo

SHARES = [Classified(10**17 + place, 10**17 - place) for place in range(5)]
NAMES = {each.__name__: each for each in (Classified, Predicted, Tally, tally_of, decode, encode)}


def bits(each: int) -> Predicted:
    """A text of 16 bytes with so many bits for each."""
    return Predicted(1, each * UNIT * 16, 16)


def test_what_tallies_come_to(comes_to_what_was_read: ComesTo) -> None:
    """Another machine may turn one answer, or two in a thousand and a tenth of the wrong ones. No more
    answers are right than were given, no byte has more bits than are counted, and tasks are neither compared
    nor added. Of nothing, nothing is right; a text worse than chance has an error of one and is still
    compared. A record names the kind, and the numbers alone tell it."""
    comes_to_what_was_read("tallies.txt", {**globals(), **NAMES, "MOST_BITS": MOST_BITS})
