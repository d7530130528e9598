"""Sums over the ranks of a group are exact, and no kind is taken for another."""

from __future__ import annotations

import pytest

from aiperf.tasks.images.tally import Classified
from aiperf.tasks.language.tally import MOST_BITS, UNIT, Predicted
from aiperf.tasks.tally import Tally, tally_of
from nas.record import decode, encode
from tests.tables import ComesTo


def test_a_sum_is_exact_in_every_order() -> None:
    shares = [Classified(10**17 + place, 10**17 - place) for place in range(5)]
    assert shares[0] + shares[1] + shares[2] == shares[2] + shares[0] + shares[1]
    assert sum(shares, Classified.nothing()).of == 5 * 10**17 + 10
    assert shares[0] + shares[1] == Classified(2 * 10**17 + 1, 2 * 10**17 - 1)


def test_tallies_of_two_tasks_are_not_added() -> None:
    with pytest.raises(TypeError, match="are of two tasks"):
        Classified(1, 1) + Tally(1)


def test_the_error_is_the_share_of_wrong_answers() -> None:
    assert Classified(4, 3).error == 0.25
    assert Classified(0, 0).error == 1.0  # of nothing, nothing is right
    assert Classified(200, 200).floor == 1 / 400
    assert Classified(1197, 1171).text() == "26 of 1,197 wrong"


def test_a_record_names_the_kind_and_numbers_alone_tell_it() -> None:
    assert encode(Classified(4, 3)) == {"type": "Classified", "of": 4, "correct": 3}
    assert decode(Tally, encode(Classified(4, 3))) == Classified(4, 3)
    assert tally_of({"correct": 3, "of": 4}) == Classified(4, 3)
    text = Predicted(4, 1_000_000, 1024)
    assert tally_of({"of": 4, "units": 1_000_000, "bytes": 1024}) == text == decode(Predicted, encode(text))
    for strange in ({}, {"correct": 3}, {"correct": 3, "of": 4, "more": 5}):
        with pytest.raises(ValueError, match="its keys are "):
            tally_of(strange)


def test_the_error_of_a_text_is_its_bits_of_eight() -> None:
    tally = Predicted(of=4, units=2 * UNIT * 1024, bytes=1024)
    assert tally.bits_per_byte == 2.0
    assert tally.error == tally.unbounded == 0.25
    assert tally.floor == 1 / (16 * 1024)
    assert tally.text() == "2.0000 bits per byte, of 1,024 bytes"
    assert Predicted.nothing().error == 1.0


def test_a_text_worse_than_chance_has_an_error_of_one_and_is_still_compared() -> None:
    worse, worst = (Predicted(1, bits * UNIT * 16, 16) for bits in (9, 10))
    assert worse.error == worst.error == 1.0
    assert worse.unbounded < worst.unbounded


def test_tallies_that_agree_and_tallies_that_cannot_be(comes_to_what_was_read: ComesTo) -> None:
    """Another machine may turn one answer, or two in a thousand and a tenth of the wrong ones. No more
    answers are right than were given, no byte has more bits than are counted, and tasks are not compared."""
    names = {"Classified": Classified, "Predicted": Predicted, "MOST_BITS": MOST_BITS, "UNIT": UNIT}
    comes_to_what_was_read("tallies.txt", names)
