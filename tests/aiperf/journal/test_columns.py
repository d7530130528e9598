"""What a long run is held in."""

from __future__ import annotations

import pytest

from aiperf.journal.columns import Digests

DIGEST = "0f" * 32
TEXTS = ["", DIGEST, DIGEST.upper(), "0" * 64, " " * 64, f"{DIGEST[:-2]} f", "é" * 64, "x", f"{DIGEST} "]
"""A digest, and what is nearly one: a journal may have any text in its place."""


def test_texts_in_the_place_of_digests_are_given_back_as_they_are() -> None:
    held = Digests()
    for text in TEXTS:
        held.append(text)
    assert list(held) == TEXTS
    assert held.known.tolist() == [text != "" for text in TEXTS]
    with pytest.raises(IndexError):
        held[len(TEXTS)]


def test_a_text_can_be_written_over_by_any_other() -> None:
    held = Digests()
    held.append("")
    for text in (*TEXTS, *TEXTS[::-1]):
        held[0] = text
        assert list(held) == [text]
        assert held.known.tolist() == [text != ""]


def test_digests_take_a_third_of_the_memory_of_texts() -> None:
    """And nothing else is held for them."""
    held = Digests()
    for _ in range(1000):
        held.append(DIGEST)
    assert (len(held._packed), held._others) == (32_000, {})
