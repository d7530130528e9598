"""Which images are held back for validation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.config import DataConfig
from aiperf.data.stratify import stratified, take_validation
from aiperf.errors import DataError


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any), st.floats(0, 1))
def test_every_class_gets_its_share_within_one(a_class: list[int], part: float) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(a_class)), a_class))
    wanted = round(part * len(labels))
    chosen = stratified(labels, wanted)
    assert len(chosen) == wanted
    assert (np.diff(chosen) > 0).all()
    share = np.array(a_class) * wanted / len(labels)
    assert np.abs(np.bincount(labels[chosen], minlength=len(a_class)) - share).max() < 1


def config(training: int, validation: int) -> DataConfig:
    return DataConfig("idx", 1, 8, 4, training_examples=training, validation_examples=validation)


def test_without_a_limit_training_is_all_that_validation_leaves() -> None:
    labels = np.repeat(np.arange(4), 25)
    training, validation = take_validation(labels, config(0, 20), "here")
    assert sorted([*training, *validation]) == list(range(100))
    assert np.bincount(labels[validation]).tolist() == [5, 5, 5, 5]
    assert (np.diff(np.flatnonzero(labels[validation] == 0)) > 0).all()


def test_validation_does_not_depend_on_how_much_is_trained_on() -> None:
    labels = np.repeat(np.arange(4), 25)
    few, many = (take_validation(labels, config(training, 20), "here") for training in (8, 80))
    assert few[1].tolist() == many[1].tolist()
    assert not set(few[0]) & set(few[1])


@pytest.mark.parametrize(
    ("training", "validation", "expected"),
    [
        (
            90,
            20,
            (
                "here: 100 training images cannot give 90 for training and 20 for validation; "
                "lower data.training_examples or data.validation_examples"
            ),
        ),
        (
            80,
            3,
            (
                "here: class 3 has no image among the 3 of validation; "
                "raise data.validation_examples or add images of that class"
            ),
        ),
        (
            2,
            20,
            (
                "here: class 2 has no image among the 2 of training; "
                "raise data.training_examples or add images of that class"
            ),
        ),
    ],
)
def test_too_few_images_are_refused(training: int, validation: int, expected: str) -> None:
    with pytest.raises(DataError) as refused:
        take_validation(np.repeat(np.arange(4), 25), config(training, validation), "here")
    assert str(refused.value) == expected
