"""The text that comes with this program: sources of the documentation of Python, unpacked in memory.

README.md beside this file says what it is, and benchmarks/text/bundled.py made it.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from importlib import resources

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from aiperf.errors import DataError
from aiperf.tasks.language.known_texts import BUNDLED_TEXT

WHERE = "the bundled text"
PACKED = "python_docs.txt.xz"


class HeldText:
    """Bytes that lie in memory."""

    def __init__(self, where: str, text: bytearray) -> None:
        self.where = where
        self.bytes = len(text)
        self._text = text
        self._array = np.frombuffer(text, np.uint8)

    def chunks(self) -> Iterator[memoryview]:
        yield memoryview(self._text)

    def windows(self, places: NDArray[np.int64], length: int) -> NDArray[np.uint8]:
        shown: NDArray[np.uint8] = sliding_window_view(self._array, length)[places]
        return shown


def bundled_text() -> HeldText:
    """Raises DataError where it is not what the repository pins."""
    packed = resources.files("aiperf") / "data" / "texts" / PACKED
    try:
        import lzma  # here: a Python that was built without liblzma has none

        text = lzma.decompress(packed.read_bytes())
    except ImportError:
        raise DataError(
            f"{WHERE}: this Python was built without lzma; build it with liblzma, or unpack {packed} with "
            f"xz -dc and set data.path to the file"
        ) from None
    except (OSError, lzma.LZMAError) as error:
        raise DataError(f"{WHERE}: {packed} cannot be read: {error}; reinstall this program") from None
    digest = sha256(text).hexdigest()
    if digest != BUNDLED_TEXT.sha256:
        raise DataError(f"{WHERE}: SHA-256 {digest} instead of {BUNDLED_TEXT.sha256}; reinstall this program")
    return HeldText(WHERE, bytearray(text))
