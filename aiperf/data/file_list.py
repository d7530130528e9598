"""The files of one part of an image folder: found, fingerprinted and looked into."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aiperf.data.decode import check_file
from aiperf.errors import DataError
from aiperf.os_error import unreadable
from aiperf.wording import first_few

SUFFIXES = (".jpg", ".jpeg", ".png")
# Every file of smaller sets is opened before the clock starts; of larger ones so many of each part,
# evenly spread. A bad file among the others ends the trial that meets it, with its name.
CHECKED_FILES = 20_000
# Threads that wait for the file system.
READERS = 16


@dataclass(frozen=True)
class FileList:
    """The files of one part: classes in order of their names, and in each the files in order of theirs."""

    root: Path
    classes: tuple[str, ...]
    names: NDArray[np.bytes_]
    sizes: NDArray[np.int64]
    """In bytes."""
    labels: NDArray[np.int64]

    def path(self, index: int) -> str:
        return f"{self.root}/{self.classes[self.labels[index]]}/{os.fsdecode(self.names[index])}"


def class_folders(root: Path) -> list[str]:
    """Names of the folders in a folder, sorted, hidden ones apart. Raises DataError."""
    try:
        with os.scandir(root) as entries:
            return sorted(
                entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()
            )
    except OSError as error:
        raise DataError(unreadable(error)) from None


def scan(root: Path) -> FileList:
    """Raises DataError for a folder that cannot be read, and for a class without images."""
    classes = class_folders(root)
    try:
        with ThreadPoolExecutor(READERS) as readers:
            files = list(readers.map(_files, (root / name for name in classes)))
    except OSError as error:
        raise DataError(unreadable(error)) from None
    for name, found in zip(classes, files):
        if not found:
            raise DataError(
                f"{root / name}: holds no {' '.join(SUFFIXES)} file; add images or remove the folder"
            )
    labels = np.repeat(np.arange(len(classes)), [len(found) for found in files])
    names = np.array([os.fsencode(name) for found in files for name, _ in found])
    sizes = np.array([size for found in files for _, size in found], dtype=np.int64)
    return FileList(root, tuple(classes), names, sizes, labels)


def check_files(listing: FileList) -> None:
    """Raises DataError for an empty file (of all), or one that cannot be decoded (of `CHECKED_FILES`)."""
    for index in np.flatnonzero(listing.sizes == 0)[:1]:
        raise DataError(f"{listing.path(index)}: is empty; download the data set again")
    total = len(listing.names)
    chosen = np.linspace(0, total - 1, min(total, CHECKED_FILES)).astype(np.int64)
    with ThreadPoolExecutor(READERS) as readers:
        told = [
            fault for fault in readers.map(_fault, (Path(listing.path(index)) for index in chosen)) if fault
        ]
    if told:
        raise DataError(first_few(list(dict.fromkeys(told))))  # a broken Pillow says the same of each


def _fault(path: Path) -> str:
    try:
        check_file(path)
    except DataError as error:
        return str(error)
    return ""


def fingerprint(*listings: FileList) -> str:
    """SHA-256 of the lines "class, tab, file name, tab, bytes", sorted, training before test."""
    digest = sha256()
    for listing in listings:
        for label, name, size in zip(listing.labels, listing.names, listing.sizes):
            line = f"{listing.classes[label]}\t{os.fsdecode(name)}\t{size}\n"
            digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _files(folder: Path) -> list[tuple[str, int]]:
    """Name and bytes, sorted; what has no image's suffix, or is not a regular file, is not an image."""
    with os.scandir(folder) as entries:
        found = [
            (entry.name, entry.stat())
            for entry in entries
            if entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith(".")
        ]
    return sorted((name, told.st_size) for name, told in found if stat.S_ISREG(told.st_mode))
