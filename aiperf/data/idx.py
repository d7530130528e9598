"""IDX files, raw or .gz: MNIST, Fashion-MNIST, EMNIST, KMNIST and whatever else comes in that form.

Source of the form: LeCun, Cortes and Burges, "The MNIST database", 1998: two zero bytes, the type of
the values (8: bytes), the number of dimensions, each dimension as 4 bytes big-endian, the values.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from aiperf.data.arrays import Part
from aiperf.data.folder_contents import visible_names
from aiperf.data.parts import PartFacts, SetFacts
from aiperf.data.resident import AUGMENTATIONS
from aiperf.errors import DataError
from aiperf.os_error import is_of_system, unreadable
from nas.bounded import BLOCK_BYTES, opened

# Words in the names of the files of a part; "t10k" is MNIST's own for its 10,000 test images.
TRAINING = ("train",)
TEST = ("t10k", "test")
GZIP = b"\x1f\x8b"
"""First bytes of a gzip file (RFC 1952)."""
IDX = b"\0\0\x08"
"""First bytes of a file of bytes; the next is the number of its dimensions."""


def read_idx(folder: Path) -> tuple[Part, Part]:
    """The training and the test part, from the four files in a folder. Raises DataError."""
    return _part(folder, TRAINING), _part(folder, TEST)


def read_array(file: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of bytes in a file. Raises DataError for anything but a whole one of this many dimensions."""
    try:
        with _opened(file) as stream:
            content = bytearray(stream.read(4 + 4 * dimensions))
            shape, start = _header(file, bytes(content), dimensions)
            whole = start + math.prod(shape)
            # In blocks, and no further: what a damaged header asks for may be more than any memory.
            while len(content) <= whole and (block := stream.read(BLOCK_BYTES)):
                content += block
    except (OSError, EOFError, zlib.error) as error:
        raise _refused(file, error) from None
    if len(content) != whole:
        raise DataError(
            f"{file}: {len(content)} bytes, but its header {shape} requires {whole}; it is truncated or "
            f"damaged: download it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def look_at_idx(folder: Path) -> SetFacts:
    """The facts that the labels and the headers of the images tell. Raises DataError."""
    (training, side), (test, _) = (_look(folder, words) for words in (TRAINING, TEST))
    return SetFacts(training, test, channels=1, size=side)


def _look(folder: Path, words: tuple[str, ...]) -> tuple[PartFacts, int]:
    """The facts of a part, and the side of its images in pixels."""
    images, labels, where = _files(folder, words)
    try:
        with _opened(images) as file:
            (_, side, _), _ = _header(images, file.read(16), 3)
    except (OSError, EOFError, zlib.error) as error:
        raise _refused(images, error) from None
    return PartFacts("idx", where, read_array(labels, 1).astype(np.int64), (1,), AUGMENTATIONS), side


def _refused(file: Path, error: Exception) -> DataError:
    """The error for a file that could not be read: the system's, that of a wrong name, or that of a damaged
    archive."""
    if isinstance(error, OSError) and is_of_system(error):
        return DataError(unreadable(error, file, "download the file again"))
    if isinstance(error, gzip.BadGzipFile) and _begins(file, IDX):
        return DataError(f"{file}: is not compressed by gzip; rename it to {file.stem}")
    return DataError(f"{file}: cannot be read ({error}); download the file again")


def _begins(file: Path, content: bytes) -> bool:
    """Whether a file begins with these bytes."""
    with opened(file) as raw:
        return raw.read(len(content)) == content


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    """A context with the bytes of a file, unpacked if its name ends in .gz."""
    with opened(file) as raw:
        yield cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if file.suffix == ".gz" else raw


def _header(file: Path, content: bytes, dimensions: int) -> tuple[tuple[int, ...], int]:
    """The shape that a file states in its first bytes, and where its values start."""
    magic = IDX + bytes([dimensions])
    if content.startswith(GZIP) and file.suffix != ".gz":
        raise DataError(f"{file}: is compressed by gzip; rename it to {file.name}.gz")
    if content[:4] != magic:
        raise DataError(
            f"{file}: begins with {content[:4].hex(' ')} instead of {magic.hex(' ')} (bytes in {dimensions} "
            "dimensions); it is not such an IDX file: download it again"
        )
    start = 4 + 4 * dimensions
    return tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4)), start


def _part(folder: Path, words: tuple[str, ...]) -> Part:
    """The images and labels of a part, one channel per image."""
    images, labels, where = _files(folder, words)
    return Part(read_array(images, 3)[..., None], read_array(labels, 1).astype(np.int64), where)


def _files(folder: Path, words: tuple[str, ...]) -> tuple[Path, Path, str]:
    """The images and the labels of a part, and both in words for the errors."""
    images, labels = (_find(folder, words, what) for what in ("images", "labels"))
    return images, labels, f"{images}, {labels.name}"


def _find(folder: Path, words: tuple[str, ...], what: str) -> Path:
    """The one file of that part, of those that are not hidden; the raw one if both forms are there."""
    wanted = f"{'|'.join(words)} … {what} … ubyte[.gz]"
    try:
        names = sorted(visible_names(folder))
    except OSError as error:
        otherwise = f"set data.path to the folder that contains {wanted}"
        raise DataError(unreadable(error, folder, otherwise)) from None
    found = {
        name.removesuffix(".gz"): name  # sorted: of a pair, the shorter name comes first, so go backwards
        for name in reversed(names)
        if any(word in name for word in words) and what in name and name.removesuffix(".gz").endswith("ubyte")
    }
    if len(found) != 1:
        names_text = ", ".join(sorted(found)) or "none"
        raise DataError(
            f"{folder}: needs exactly one file named {wanted}, has {names_text}; add or remove files"
        )
    return folder / found.popitem()[1]
