"""Sums over the ranks of a group are exact, and no kind is taken for another."""

from __future__ import annotations

import pytest

from aiperf.tasks.images.tally import Classified
from aiperf.tasks.language.tally import MOST_BITS, UNIT, Predicted
from aiperf.tasks.tally import Tally, tally_of
from nas.record import decode, encode


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


@pytest.mark.parametrize(
    ("of", "correct", "recorded", "agree"),
    [
        (100, 50, 51, True),
        (100, 50, 52, False),
        (1000, 500, 502, True),
        (1000, 500, 503, False),
        # Where few answers are wrong, two in a thousand would be worth much in the score.
        (1197, 1195, 1197, False),
        (1197, 1196, 1197, True),
        (50_000, 49_500, 49_550, True),
        (50_000, 49_500, 49_551, False),
    ],
)
def test_another_machine_may_turn_one_answer_or_two_in_a_thousand_and_a_tenth_of_the_wrong_ones(
    of: int, correct: int, recorded: int, agree: bool
) -> None:
    assert Classified(of, correct).agrees(Classified(of, recorded)) is agree
    assert not Classified(of, correct).agrees(Classified(of + 1, correct))


def test_a_record_names_the_kind_and_numbers_alone_tell_it() -> None:
    assert encode(Classified(4, 3)) == {"type": "Classified", "of": 4, "correct": 3}
    assert decode(Tally, encode(Classified(4, 3))) == Classified(4, 3)
    assert tally_of({"correct": 3, "of": 4}) == Classified(4, 3)
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


@pytest.mark.parametrize(
    ("tally", "possible"),
    [
        *((Classified(4, correct), correct in (0, 4)) for correct in (-1, 0, 4, 5)),
        (Predicted(1, 0, 1), True),
        (Predicted(1, MOST_BITS * UNIT, 1), True),
        (Predicted(1, MOST_BITS * UNIT + 1, 1), False),
        (Predicted(1, -1, 1), False),
        (Predicted(2, 0, 1), False),  # no window is empty
    ],
)
def test_no_more_answers_are_right_than_were_given_and_no_byte_has_more_bits_than_are_counted(
    tally: Tally, possible: bool
) -> None:
    assert tally.is_possible is possible


def test_bits_of_a_text_may_differ_by_two_in_a_thousand_on_another_machine() -> None:
    recorded = Predicted(4, 1_000_000, 1024)
    assert Predicted(4, 1_002_000, 1024).agrees(recorded)
    assert not Predicted(4, 1_002_100, 1024).agrees(recorded)
    assert not Predicted(4, 1_000_000, 1023).agrees(recorded)
    assert not Classified(4, 4).agrees(recorded)
    assert decode(Predicted, encode(recorded)) == recorded
    assert tally_of({"of": 4, "units": 1_000_000, "bytes": 1024}) == recorded
