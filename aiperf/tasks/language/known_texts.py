"""Texts that everybody has: their length and fingerprint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiperf.tasks.language.text_windows import TextWindows
from aiperf.tasks.task import ErrorLimit, recognise
from nas.frozen import frozen
from nas.head import BYTES


@frozen
class KnownText:
    """A text, which is its bytes. How they are divided follows from their number and the size of a window."""

    title: str
    sha256: str
    bytes: int
    like_parts: bool
    """Whether its test part was measured to take about as many bits per byte as its validation part."""
    error_limit: ErrorLimit
    """The smallest error that is believed of its test part."""
    name = "text"
    """What `data.name` is."""

    def facts(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """By the keys of a manifest; the numbers of windows are those of its size."""
        size = manifest.get("size")
        windows = TextWindows(self.bytes, size if isinstance(size, int) and size > 0 else self.bytes)
        return {
            "channels": 1,
            "classes": BYTES,
            "bytes": self.bytes,
            "official_training_examples": windows.official_training,
            "test_examples": windows.test,
        }


# README.md in aiperf/data/texts says what it is.
BUNDLED_TEXT = KnownText(
    "the bundled text",
    "0e2963bc80638aef60b71d920a29b53e2b263c62b5ef809ac934ed86cf3bcec2",
    2_690_563,
    like_parts=True,  # LEAST_OF_VALIDATION in aiperf/tasks/language/tally.py
    # docs/data.md has the figure of xz. Even of enwik9, which is 370 times as long, no program needs less
    # than about half as much as xz.
    error_limit=ErrorLimit(
        0.25 * 0.2265,
        "xz takes 1.812 bits per byte after training, and no program is known to take a quarter of that",
        is_proof=True,
    ),
)
# The first 10^9 bytes of the English Wikipedia of March 3, 2006. Its maker's page, Mahoney's "About the Test
# Data", states the size and two older checksums (MD5 e206c345…a12d, SHA-1 2996e86f…e581). The SHA-256 is the
# one that independent programs and reports of others state beside those two.
ENWIK9 = KnownText(
    "enwik9",
    "159b85351e5f76e60cbe32e04c677847a9ecba3adc79addab6f4c6c7aa3744bc",
    1_000_000_000,
    like_parts=False,  # not measured
    # nncp v3.2, the best program that learns while it reads, in Mahoney's "Large Text Compression Benchmark"
    # (mattmahoney.net/dc/text.html, as of September 19, 2024), needs 107,261,318 bytes in all. The test part
    # is read after nine tenths of the text, and may be easier than the whole, so a smaller error is no proof.
    error_limit=ErrorLimit(
        0.75 * 107_261_318 / 1e9,
        "no program that learns while it reads is known to need fewer than 0.858 bits per byte of enwik9",
        is_proof=False,
    ),
)
KNOWN_TEXTS = (BUNDLED_TEXT, ENWIK9)
"""The texts that are recognised in a manifest."""


def known_text(manifest: Mapping[str, Any]) -> KnownText | None:
    """Which of them a manifest is of; None for a text that is not listed here."""
    return recognise(manifest, KNOWN_TEXTS)
