"""What looks like a secret is removed, in many shapes, and ordinary text stays."""

from __future__ import annotations

import base64
import random
import string

import pytest

from aiperf.host.secret_shapes import SECRET, without_secrets, words_without_secrets
from tests.tables import ComesTo

# Assembled, so that no scanner of repositories takes them for real ones.
_LETTERS = "q7Rk2Zx9Lm4Vt8Wp3Hs6Yd1Nf5Bg0Jc"
_HEX = "9f86d081884c7d659a2feaa0c55ad015"
_PEM = "-----BEGIN {0}PRIVATE KEY-----\nMIIEow\n-----END {0}PRIVATE KEY-----"


def removed(secret: str) -> tuple[str, str]:
    """What is left of it alone and in a sentence."""
    return without_secrets(secret), without_secrets(f"it failed: '{secret}' is wrong")


def test_a_secret_is_removed_wherever_it_stands_and_ordinary_text_stays(
    comes_to_what_was_read: ComesTo,
) -> None:
    """Alone, in a sentence, as a part of a text; and a value whose option says what it is."""
    names = {"base64": base64, "words_without_secrets": words_without_secrets}
    comes_to_what_was_read("secrets.txt", {**globals(), **names})


@pytest.mark.parametrize(
    ("characters", "length"),
    [
        (string.ascii_letters + string.digits, 22),
        (string.ascii_letters + string.digits + "+/", 43),
        (string.ascii_letters + string.digits + "-_", 43),
        (string.ascii_lowercase + string.digits, 40),
        ("0123456789abcdef", 40),
    ],
)
def test_random_words_are_found_whatever_they_are(characters: str, length: int) -> None:
    """At least 19 of 20: a word that happens to look like a name may pass."""
    draw = random.Random(1)
    words = ["".join(draw.choices(characters, k=length)) for _ in range(500)]
    assert sum(SECRET in without_secrets(word) for word in words) >= 475
