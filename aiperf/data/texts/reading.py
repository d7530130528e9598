"""A text on the disk: one file, or all files of a folder one after the other. Never read whole."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from aiperf.data.folder_contents import FolderRule, LeftOut, beginning, contents, is_text, text_of, unpacking
from aiperf.data.packed.shards import map_file
from aiperf.errors import DataError
from aiperf.os_error import unreadable

CHUNK_BYTES = 4 << 20
"""Bytes that are read at a time when a text is hashed or copied."""
MOST_MAPPED = 256
"""Files that are mapped at once, each of which holds a file open: systems allow 1,024 to a process."""


class Text(Protocol):
    """Bytes by position."""

    where: str
    """For the errors."""
    bytes: int
    note: str
    """What was read of a folder and what was left out; empty for anything else."""

    def chunks(self) -> Iterator[memoryview]:
        """All bytes in their order, in pieces that may be written. Raises DataError."""

    def windows(self, places: NDArray[np.int64], length: int) -> NDArray[np.uint8]:
        """Bytes (n, length) that begin at these places (n,). Raises DataError."""


class TextFile(NamedTuple):
    """A file of a text."""

    path: Path
    bytes: int


class MappedText:
    """Files one after the other, each mapped when it is needed."""

    def __init__(self, where: str, files: list[TextFile], note: str = "") -> None:
        self.where, self.note = where, note
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
        # A window may begin in one file and end in another, even some files later.
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
        """The bytes of a file (n,), by its number. Raises DataError."""
        path, length = self._files[number]
        found: NDArray[np.uint8] = np.frombuffer(map_file(path), np.uint8)
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
    note = ""
    if stat.S_ISREG(mode.st_mode):
        files, note = [TextFile(path, mode.st_size)], _of_file(path)
    elif stat.S_ISDIR(mode.st_mode):
        files, note = _of_folder(path)
    else:
        _refuse_kind(path, mode.st_mode)
    files = [file for file in files if file.bytes]
    if not files:
        raise DataError(
            f"{path}: no text{f' ({note})' if note else ''}; give a text file, or a folder of text files; "
            f"for images, omit --preset"
        )
    return MappedText(str(path), files, note)


def _of_folder(folder: Path) -> tuple[list[TextFile], str]:
    """The texts in a folder and its folders, and the report. Raises DataError."""
    found = contents(folder, FolderRule(is_text, _refuse_kind, _refuse_linked_folder))
    # By the bytes of their names, which no locale orders otherwise.
    ordered = sorted(found.files, key=lambda file: os.fsencode(file.name))
    files = [TextFile(folder / file.name, file.bytes) for file in ordered]
    others = sum(number for reason, number in found.left_out.items() if reason is not LeftOut.FOLDER)
    return files, text_of(len(files), len(files) + others, "files", found.left_out)


def _refuse_linked_folder(path: Path) -> NoReturn:
    """It may lead to a folder around it, without end."""
    raise DataError(f"{path}: is a link to a folder; remove it, or copy the files of that folder")


def _of_file(path: Path) -> str:
    """A note on a file that looks like no text. Raises DataError for a compressed one, whose bytes no network
    can predict."""
    if command := unpacking(beginning(path)):
        quoted = shlex.quote(str(path))
        raise DataError(
            f"{path}: is compressed; unpack it with `{command.format(quoted)}`, and give {path}.unpacked"
        )
    return f"{path} looks like a binary file; all its bytes are read" if is_text(str(path)) else ""


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
    """Raises DataError for a file that was changed: its hash would not be that of the bytes that are
    trained on."""
    raise DataError(
        f"{path}: had {expected:,} bytes and now has {found:,}; do not change it while it is being read"
    )
