"""Known texts: recognised by their fingerprint, and a manifest of one has the numbers that follow from it."""

from __future__ import annotations

import pytest

from aiperf.config import load_preset
from aiperf.tasks.images.known_sets import CIFAR_10, DIGITS, IMAGENET_1K, known_set
from aiperf.tasks.language.known_texts import BUNDLED_TEXT, ENWIK9, known_text
from aiperf.tasks.language.task import LANGUAGE
from aiperf.tasks.task import differences
from tests.journals import DATA

MANIFEST = LANGUAGE.data.foreseen(load_preset("ranked-text").data)


def test_a_text_is_recognised_by_its_bytes() -> None:
    assert known_text(MANIFEST) is ENWIK9
    assert differences(MANIFEST, ENWIK9) == []
    assert known_text({**MANIFEST, "sha256": "0" * 64}) is None
    assert known_text({**MANIFEST, "name": "idx"}) is None
    assert known_text({"name": "text", "sha256": BUNDLED_TEXT.sha256}) is BUNDLED_TEXT


def test_the_number_of_windows_follows_from_their_size() -> None:
    longer = {**MANIFEST, "size": 2048, "official_training_examples": 463_866, "test_examples": 24_414}
    assert known_text(longer) is ENWIK9
    assert differences(longer, ENWIK9) == []


def test_other_numbers_are_told() -> None:
    assert differences({**MANIFEST, "classes": 255, "test_examples": 48_829}, ENWIK9) == [
        "classes is 255, but enwik9 has 256",
        "test_examples is 48829, but enwik9 has 48828",
    ]


@pytest.mark.parametrize("size", [None, 0, -1, "1024", 10**12])
def test_a_size_that_is_none_leaves_no_windows(size: object) -> None:
    """A manifest is anybody's."""
    assert "test_examples is 48828, but enwik9 has 0" in differences({**MANIFEST, "size": size}, ENWIK9)


def test_a_fingerprint_belongs_to_a_set_and_a_set_to_its_fingerprint() -> None:
    assert known_set(DATA) is DIGITS
    assert known_set({**DATA, "name": "idx", "sha256": "0" * 64}) is None
    assert known_set({**DATA, "sha256": CIFAR_10.sha256}) is None


def test_packed_imagenet_is_known_as_imagenet() -> None:
    manifest = {**IMAGENET_1K.facts({}), "channels": 3, "name": "packed", "packed": {"side": 256}}
    assert known_set(manifest) is IMAGENET_1K
    assert known_set({**manifest, "test_examples": 49_999}) is None
