"""What belongs to the data of a folder: one rule for images and text, and a report of what it leaves out.

Files are taken at any depth. Left out are hidden files and folders, editors' backups, a file that another
link has led to already, and what is not of the kind: for images, files with other suffixes; for text,
compressed and binary files."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from aiperf.errors import DataError
from aiperf.os_error import unreadable
from aiperf.tasks.data import IMAGE_SUFFIXES
from nas.frozen import frozen

# Folders that systems put beside a user's: unpacked archives of macOS, thumbnails of Synology, ext4.
HIDDEN_NAMES = ("__MACOSX", "@eaDir", "lost+found")
# Of Emacs and nano, of vi, and of programs that replace a file or download one.
BACKUP = re.compile(r".*(~|\.sw[nop]|\.bak|\.orig|\.tmp|\.part)|#.*#", re.DOTALL | re.IGNORECASE)
LOOKED_AT = 8192
"""Bytes at the beginning of a file that tell whether it is a text; git looks at as many."""
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""Marks at the beginning of a text whose bytes may be 0."""
PDF = b"%PDF-"
"""First bytes of a PDF file, which may have no byte 0 among those that are looked at."""
COMPRESSED: Mapping[str, re.Pattern[bytes]] = {
    "gzip -dc {0} > {0}.unpacked": re.compile(rb"\x1f[\x8b\x9d]"),
    "bzip2 -dc {0} > {0}.unpacked": re.compile(rb"BZh[1-9]1AY&SY"),
    "xz -dc {0} > {0}.unpacked": re.compile(rb"\xfd7zXZ\0"),
    "zstd -dc {0} > {0}.unpacked": re.compile(rb"\x28\xb5\x2f\xfd"),
    "lz4 -dc {0} > {0}.unpacked": re.compile(rb"\x04\x22\x4d\x18"),
    "unzip {0} -d {0}.unpacked": re.compile(rb"PK\x03\x04"),
    "7z x -o{0}.unpacked {0}": re.compile(rb"7z\xbc\xaf\x27\x1c"),
    "unrar x {0} {0}.unpacked/": re.compile(rb"Rar!\x1a\x07"),
}
"""How compressed files begin, by the command that unpacks one of any name."""


class LeftOut(Enum):
    """Why something in a folder is not read: its noun, and that of several."""

    HIDDEN = "hidden file", "hidden files"
    FOLDER = "hidden folder", "hidden folders"
    BACKUP = "editor's backup", "editors' backups"
    LINKED = "link to what is read already", "links to what is read already"
    COMPRESSED = "compressed file", "compressed files"
    BINARY = "binary file", "binary files"
    OTHER = "file of another kind", "files of other kinds"
    OUTSIDE = "image outside the class folders", "images outside the class folders"


class FolderFile(NamedTuple):
    """A file of the data."""

    name: str
    """Its path below the folder."""
    bytes: int
    inode: tuple[int, int]
    """Device and inode."""
    linked: bool
    """Whether its name is or passes through a symbolic link, or is one of several hard links. Other files
    share an inode only if a file system makes inodes up."""


@frozen
class Contents:
    """The files of a folder's data, sorted by name, and how many others were left out, by reason."""

    files: Sequence[FolderFile]
    left_out: Counter[LeftOut]


@frozen
class FolderRule:
    """What the data of a folder are."""

    judge: Callable[[str], LeftOut | None]
    """Why a regular file is left out, by its path, if its name is not hidden; None if it is data. May raise
    DataError."""
    special: Callable[[Path, int], LeftOut]
    """Why a pipe, a socket or a device is left out, by its mode. May raise DataError."""
    linked_folder: Callable[[Path], object]
    """Raises DataError for a link to a folder, or returns if such folders are read."""


def contents(folder: Path, rule: FolderRule) -> Contents:
    """The data of a folder, each file and each folder once. Raises DataError for what cannot be read."""
    walk = _Walk(rule)
    files, known = [], set()
    for _, each in sorted(
        (is_link, each) for each, is_link in walk.below(folder, "", folder.is_symlink())
    ):  # links come last
        if each.linked and each.inode in known:
            walk.left_out[LeftOut.LINKED] += 1
        else:
            known.add(each.inode)
            files.append(each)
    return Contents(sorted(files), walk.left_out)


@frozen
class _Walk:
    """A walk through a folder, with what it has met so far."""

    rule: FolderRule
    left_out: Counter[LeftOut] = field(default_factory=Counter)
    """What was left out so far, by reason."""
    folders: set[tuple[int, int]] = field(default_factory=set)
    """Device and inode of the folders that were entered: a link may lead to one around it."""

    def below(self, folder: Path, prefix: str, through_link: bool) -> Iterator[tuple[FolderFile, bool]]:
        """Each file, and whether its name is a symbolic link or passes through one."""
        self.folders.add(_inode(os.stat(folder)))
        for entry in entries(folder):
            if (reason := left_out_by_name(entry)) is not None:
                self.left_out[reason] += 1
                continue
            name, status = prefix + entry.name, _stat(entry)
            is_link = through_link or entry.is_symlink()
            if stat.S_ISDIR(status.st_mode):
                if entry.is_symlink():
                    self.rule.linked_folder(Path(entry.path))
                if _inode(status) in self.folders:
                    self.left_out[LeftOut.LINKED] += 1
                else:
                    yield from self.below(Path(entry.path), f"{name}/", is_link)
                continue
            if stat.S_ISREG(status.st_mode):  # ImageNet has 1.3 million, so nothing is made here for each
                reason = self.rule.judge(entry.path)
            else:
                reason = self.rule.special(Path(entry.path), status.st_mode)
            if reason is None:
                yield (
                    FolderFile(name, status.st_size, _inode(status), is_link or status.st_nlink > 1),
                    is_link,
                )
            else:
                self.left_out[reason] += 1


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """Everything in a folder. Raises DataError."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError as error:
        raise DataError(unreadable(error, folder)) from None


def left_out_by_name(entry: os.DirEntry[str]) -> LeftOut | None:
    """Why a file or folder is left out, if its name says so."""
    if entry.name.startswith(".") or entry.name in HIDDEN_NAMES:
        return LeftOut.FOLDER if entry.is_dir() else LeftOut.HIDDEN
    return LeftOut.BACKUP if BACKUP.fullmatch(entry.name) and not entry.is_dir() else None


def visible_names(folder: Path) -> list[str]:
    """Names in a folder that are not left out. Raises OSError."""
    with os.scandir(folder) as found:
        return [entry.name for entry in found if left_out_by_name(entry) is None]


def text_of(taken: int, total: int, noun: str, left_out: Mapping[LeftOut, int]) -> str:
    """The report: "120 of 120 images; 3 hidden files left out"."""
    reasons = [
        f"{left_out[each]:,} {each.value[left_out[each] > 1]}" for each in LeftOut if left_out.get(each)
    ]
    read = f"{taken:,} of {total:,} {noun}"
    return f"{read}; {', '.join(reasons)} left out" if reasons else read


def is_image(path: str) -> LeftOut | None:
    """The rule for a file among images."""
    return None if path.lower().endswith(IMAGE_SUFFIXES) else LeftOut.OTHER


def is_text(path: str) -> LeftOut | None:
    """The rule for a file among texts, by how it begins. Raises DataError."""
    begins = beginning(Path(path))
    if unpacking(begins):
        return LeftOut.COMPRESSED
    is_binary = b"\0" in begins and not begins.startswith(UTF_16)
    return LeftOut.BINARY if is_binary or begins.startswith(PDF) else None


def unpacking(begins: bytes) -> str:
    """The command that unpacks a file that begins so; empty if it is not compressed."""
    return next((command for command, magic in COMPRESSED.items() if magic.match(begins)), "")


def beginning(path: Path) -> bytes:
    """The first LOOKED_AT bytes of a file. Raises DataError."""
    try:
        with path.open("rb", buffering=0) as file:
            return file.read(LOOKED_AT)
    except OSError as error:
        raise DataError(unreadable(error, path)) from None


def _stat(entry: os.DirEntry[str]) -> os.stat_result:
    """Raises DataError, also for a link that leads nowhere."""
    try:
        return entry.stat()
    except OSError as error:
        raise DataError(unreadable(error, entry.path, "do not change the folder while it is read")) from None


def _inode(status: os.stat_result) -> tuple[int, int]:
    """Device and inode, by which two names of one file are known."""
    return status.st_dev, status.st_ino
