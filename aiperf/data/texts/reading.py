"""A text on the disk: one file, or all files of a folder one after the other. Never read whole."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from aiperf.data.packed.shards import mapped
from aiperf.errors import DataError
from aiperf.os_error import unreadable

CHUNK_BYTES = 4 << 20
MOST_MAPPED = 256
"""Files that are mapped at once, each of which holds a file open: systems allow 1,024 to a process."""


class Text(Protocol):
    """Bytes by position."""

    where: str
    """For the errors."""
    bytes: int

    def chunks(self) -> Iterator[memoryview]:
        """All bytes in their order, in pieces that may be written. Raises DataError."""

    def windows(self, places: NDArray[np.int64], length: int) -> NDArray[np.uint8]:
        """Bytes (n, length) that begin at these places (n,). Raises DataError."""


class TextFile(NamedTuple):
    path: Path
    bytes: int


class MappedText:
    """Files one after the other, each mapped when it is needed."""

    def __init__(self, where: str, files: list[TextFile]) -> None:
        self.where = where
        self._files = files
        self._ends = np.cumsum([file.bytes for file in files])
        self.bytes = int(self._ends[-1])
        self._map = lru_cache(MOST_MAPPED)(self._mapped)

    def chunks(self) -> Iterator[memoryview]:
        """By reading: pages of a map would count as memory of this process."""
        for path, length in self._files:
            done = 0
            try:
                with path.open("rb", buffering=0) as file:
                    while size := file.readinto(chunk := bytearray(CHUNK_BYTES)):
                        yield memoryview(chunk)[:size]
                        done += size
            except OSError as error:
                raise DataError(unreadable(error, path, "put it back")) from None
            if done != length:
                _refuse_changed(path, length, done)

    def windows(self, places: NDArray[np.int64], length: int) -> NDArray[np.uint8]:
        shown = np.empty((len(places), length), np.uint8)
        numbers = np.searchsorted(self._ends, places, side="right")
        for window, place, number in zip(shown, places.tolist(), numbers.tolist()):
            filled = 0
            while filled < length:
                begin = int(self._ends[number]) - self._files[number].bytes
                first = place + filled - begin
                piece = self._map(number)[first : first + length - filled]
                window[filled : filled + len(piece)] = piece
                filled += len(piece)
                number += 1
        return shown

    def _mapped(self, number: int) -> NDArray[np.uint8]:
        path, length = self._files[number]
        found: NDArray[np.uint8] = np.frombuffer(mapped(path), np.uint8)
        if len(found) != length:  # a read beyond the end of a map kills
            _refuse_changed(path, length, len(found))
        return found


def text_at(path: Path) -> MappedText:
    """The text of a file, or of all files in a folder. Raises DataError."""
    try:
        mode = os.stat(path)
    except OSError as error:
        otherwise = "give a text file, or a folder of text files"
        raise DataError(f"data.path is {unreadable(error, path, otherwise)}") from None
    if stat.S_ISREG(mode.st_mode):
        files = [TextFile(path, mode.st_size)]
    elif stat.S_ISDIR(mode.st_mode):
        # By the bytes of their names, which no locale orders otherwise.
        files = sorted(_below(path), key=lambda file: os.fsencode(file.path.relative_to(path)))
    else:
        _refuse_kind(path, mode.st_mode)
    files = [file for file in files if file.bytes]
    if not files:
        raise DataError(f"{path}: empty; give a text file, or a folder of text files")
    return MappedText(str(path), files)


def _below(folder: Path) -> Iterator[TextFile]:
    """Every file in a folder and its folders. Raises DataError for what is neither."""
    try:
        with os.scandir(folder) as entries:
            found = [(entry, entry.stat()) for entry in entries]
    except OSError as error:
        raise DataError(unreadable(error, error.filename or folder, "put it back")) from None
    for entry, mode in found:
        path = Path(entry.path)
        if stat.S_ISREG(mode.st_mode):
            yield TextFile(path, mode.st_size)
        elif not stat.S_ISDIR(mode.st_mode):
            _refuse_kind(path, mode.st_mode)
        elif entry.is_symlink():  # may lead to a folder around it, without end
            raise DataError(f"{path}: is a link to a folder; remove it, or copy the files of that folder")
        else:
            yield from _below(path)


def _refuse_kind(path: Path, mode: int) -> NoReturn:
    """To read it might wait forever, or never end."""
    kinds = {
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    kind = kinds.get(stat.S_IFMT(mode), "no file")
    raise DataError(f"{path}: is {kind}; give a text file, or a folder of text files")


def _refuse_changed(path: Path, expected: int, found: int) -> NoReturn:
    raise DataError(
        f"{path}: had {expected:,} bytes and now has {found:,}; do not change it while it is being read"
    )
