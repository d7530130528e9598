"""How many windows a text has: counted by hand, and by walking through it."""

from __future__ import annotations

import pytest

from aiperf.tasks.language.text_windows import TextWindows


def test_a_text_is_divided_as_enwik8_customarily_is() -> None:
    training, validation, test = TextWindows(100_000_000, 1024).parts
    assert (training, validation) == (range(90_000_000), range(90_000_000, 95_000_000))
    assert test == range(95_000_000, 100_000_000)
    found = TextWindows(1_000_000_000, 1024)
    assert (found.training, found.validation, found.test) == (878_905, 48_828, 48_828)
    assert found.official_training == 927_733


@pytest.mark.parametrize("size", [2, 3, 7, 64])
@pytest.mark.parametrize("length", [*range(0, 400, 39), 1299, 1300, 1301, 9999])
def test_the_windows_are_those_that_fit(length: int, size: int) -> None:
    found = TextWindows(length, size)
    training, validation, test = found.parts
    assert [*training, *validation, *test] == list(range(length))
    for part, number in ((validation, found.validation), (test, found.test)):
        assert number == len([begin for begin in part[::size] if begin + size in part])
    starts = [training[first::size] for first in range(size)]
    assert found.training == min(len([at for at in begins if at + size in training]) for begins in starts)


@pytest.mark.parametrize(("training", "validation"), [(1, 1), (250, 128), (250, 3), (1, 7), (99, 5)])
@pytest.mark.parametrize("size", [2, 5, 64, 1024])
def test_enough_bytes_for_so_many_windows_are_no_more_than_it_takes(
    size: int, training: int, validation: int
) -> None:
    enough = TextWindows(0, size).enough_bytes(training, validation)
    fitting = [
        length
        for length in range(enough - 40, enough + 40)
        if (found := TextWindows(length, size)).training >= training
        and found.validation >= validation
        and found.test >= 1
    ]
    assert enough in fitting
    assert min(fitting) > enough - 20  # by rounding, a few bytes fewer may be enough


def test_the_longest_windows() -> None:
    for length in range(60, 400, 7):
        longest = TextWindows(length, 2).longest
        of_longest, of_longer = TextWindows(length, longest), TextWindows(length, longest + 1)
        assert min(of_longest.training, of_longest.validation, of_longest.test) >= 1
        assert min(of_longer.validation, of_longer.test) == 0


def test_what_is_left_out_belongs_to_no_window() -> None:
    found = TextWindows(1000, 10)
    assert (found.training, found.validation, found.test) == (89, 4, 4)
    assert found.left_out(89 + 4 + 4) == 1000 - 891 - 41 - 41 == 27
