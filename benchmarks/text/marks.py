"""What simple models and compressors make of a text's test part, to compare networks with: bits per byte.

    python -m benchmarks.text.marks [file or folder]

Without a path it is the bundled text. Prints columns of the table in docs/data.md.
"""

from __future__ import annotations

import gzip
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aiperf.data.texts.loading import bundled_text
from aiperf.data.texts.reading import Text, text_at
from aiperf.tasks.language.text_windows import TextWindows
from benchmarks.script import head, row
from nas.head import BYTES

CHUNK = 1 << 24
"""Contexts that are counted at once."""
Probabilities = NDArray[np.float64]


def backed_off(training: NDArray[np.uint8], tested: NDArray[np.uint8], order: int) -> float:
    """Bits per byte of what is tested, by how often bytes follow others in training.

    Witten and Bell's estimate (IEEE Transactions on Information Theory 37, 1991): of n bytes seen after a
    context, d of them different, a share of d / (n + d) is left to the shorter context; that of none is left
    to all 256 bytes alike. The first bytes of what is tested have shorter contexts.
    """
    shorter: Probabilities = np.full((1, BYTES), 1 / BYTES)
    bits = 0.0
    for length in range(order + 1):
        counts = _counts(training, length)
        seen, different = counts.sum(1, keepdims=True), (counts > 0).sum(1, keepdims=True)
        # A context without its first byte has the number of that context modulo 256^(length - 1).
        below = np.tile(shorter, (len(counts) // len(shorter), 1))
        shorter = np.where(seen > 0, (counts + different * below) / np.maximum(seen + different, 1), below)
        if length < order:
            bits -= np.log2(shorter[_context(tested[:length]), tested[length]])
    for codes in _codes(tested, order):
        bits -= np.log2(shorter.reshape(-1)[codes]).sum()
    return float(bits / len(tested))


def _counts(text: NDArray[np.uint8], length: int) -> NDArray[np.int64]:
    """How often each byte follows each context of this many bytes: (256^length, 256)."""
    counts = np.zeros(BYTES ** (length + 1), np.int64)
    for codes in _codes(text, length):
        counts += np.bincount(codes, minlength=len(counts))
    return counts.reshape(-1, BYTES)


def _codes(text: NDArray[np.uint8], length: int) -> Iterator[NDArray[np.int64]]:
    """Each context with the byte after it, as one number."""
    total = len(text) - length
    for first in range(0, total, CHUNK):
        size = min(CHUNK, total - first)
        codes = np.zeros(size, np.int64)
        for place in range(length + 1):
            codes = codes * BYTES + text[first + place : first + place + size]
        yield codes


def _context(before: NDArray[np.uint8]) -> int:
    """The context as the number that `_codes` gives it."""
    return int.from_bytes(before.tobytes(), "big")


def xz(content: bytes) -> int:
    """Size of what xz makes of it at its best setting."""
    return len(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))


def marks(text: bytes) -> Iterator[tuple[str, float]]:
    """Bits per byte of the test part, by what made them."""
    trained, _, part = TextWindows(len(text), 1).parts
    training, tested = text[: trained.stop], text[part.start :]
    arrays = [np.frombuffer(each, np.uint8) for each in (training, tested)]
    for order in range(3):
        yield f"order {order}, counted in training", backed_off(*arrays, order)
    share = 8 / len(tested)
    yield "gzip -9, the test part alone", len(gzip.compress(tested, 9, mtime=0)) * share
    yield "xz -9e, the test part alone", xz(tested) * share
    yield "xz -9e, the test part after training", (xz(training + tested) - xz(training)) * share


def main(path: str | None = None) -> None:
    text: Text = text_at(Path(path)) if path else bundled_text()
    print(head("model", Path(path).name if path else "bundled text", "error"))
    for name, bits in marks(b"".join(text.chunks())):
        print(row(name, f"{bits:.3f}", f"{bits / 8:.4f}"), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
