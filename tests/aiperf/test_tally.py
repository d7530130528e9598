"""Sums over the ranks of a group are exact, and no kind is taken for another."""

from __future__ import annotations

import pytest

from aiperf.tally import Classified, Tally, tally_of
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


@pytest.mark.parametrize(("correct", "possible"), [(-1, False), (0, True), (4, True), (5, False)])
def test_no_more_answers_are_right_than_were_given(correct: int, possible: bool) -> None:
    assert Classified(4, correct).is_possible is possible


@pytest.mark.parametrize(
    ("of", "correct", "recorded", "agree"),
    [(100, 50, 51, True), (100, 50, 52, False), (1000, 500, 502, True), (1000, 500, 503, False)],
)
def test_another_machine_may_turn_one_answer_or_two_in_a_thousand(
    of: int, correct: int, recorded: int, agree: bool
) -> None:
    assert Classified(of, correct).agrees(Classified(of, recorded)) is agree
    assert not Classified(of, correct).agrees(Classified(of + 1, correct))


def test_a_record_names_the_kind() -> None:
    assert encode(Classified(4, 3)) == {"type": "Classified", "of": 4, "correct": 3}
    assert decode(Tally, encode(Classified(4, 3))) == Classified(4, 3)


def test_numbers_alone_tell_the_kind() -> None:
    assert tally_of({"correct": 3, "of": 4}) == Classified(4, 3)
    for strange in ({}, {"correct": 3}, {"correct": 3, "of": 4, "more": 5}):
        with pytest.raises(ValueError, match="its keys are "):
            tally_of(strange)
