"""Known sets and texts: recognised by their fingerprint; what follows from one is in its manifest."""

from __future__ import annotations

from collections.abc import Mapping

from aiperf.config import load_preset
from aiperf.tasks.images.known_sets import CIFAR_10, IMAGENET_1K, known_set
from aiperf.tasks.language.known_texts import BUNDLED_TEXT, ENWIK9, known_text
from aiperf.tasks.language.task import LANGUAGE
from aiperf.tasks.task import differences
from tests.journals import DATA
from tests.tables import ComesTo

TEXT = LANGUAGE.data.foreseen(load_preset("ranked-text").data)
LONGER = {**TEXT, "size": 2048, "official_training_examples": 463_866, "test_examples": 24_414}
PACKED = {**IMAGENET_1K.facts({}), "channels": 3, "name": "packed", "packed": {"side": 256}}


def known(manifest: Mapping[str, object]) -> str:
    """The title of the set or text of a manifest, which is anybody's."""
    found = known_set(manifest) or known_text(manifest)
    return "" if found is None else found.title


def test_a_set_is_recognised_by_its_fingerprint_and_other_numbers_are_told(
    comes_to_what_was_read: ComesTo,
) -> None:
    """Packed ImageNet is ImageNet. The number of windows follows from their size."""
    names = {"differences": differences, "ENWIK9": ENWIK9, "BUNDLED_TEXT": BUNDLED_TEXT, "CIFAR_10": CIFAR_10}
    comes_to_what_was_read("known_sets.txt", {**globals(), **names, "DATA": DATA})
