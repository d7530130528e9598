"""The files of one part of an image folder: found, fingerprinted and looked into."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aiperf.data.decode import check_file
from aiperf.data.folder_contents import (
    FolderRule,
    LeftOut,
    contents,
    entries,
    is_image,
    left_out_by_name,
    text_of,
)
from aiperf.errors import DataError
from aiperf.tasks.data import IMAGE_SUFFIXES
from aiperf.wording import counted, first_few
from nas.frozen import frozen

IMAGES = FolderRule(is_image, lambda path, mode: LeftOut.OTHER, lambda path: None)
"""What belongs to an image folder: a pipe, a socket or a device is left out, and linked folders are
read."""
# Every file of smaller sets is opened before the clock starts; of larger ones this many of each part,
# evenly spread. A bad file among the others ends the trial that meets it, with its name.
CHECKED_FILES = 20_000
TESTED_SHARE, LEAST_OF_A_CLASS = 5, 3
"""A set without a test part keeps a fifth of each class for it."""
# Threads that wait for the file system.
READERS = 16


@frozen
class FileList:
    """The files of one part: classes in order of their names, and in each the files in order of theirs."""

    root: Path
    classes: tuple[str, ...]
    names: NDArray[np.bytes_]
    sizes: NDArray[np.int64]
    """In bytes."""
    labels: NDArray[np.int64]
    inodes: NDArray[np.uint64]
    """Device and inode of each file (n, 2)."""
    linked: NDArray[np.bool_]
    """Whether its name is or passes through a symbolic link, or is one of several hard links."""
    left_out: Mapping[LeftOut, int]
    """How many other files and folders there are, by reason."""

    def path(self, index: int) -> str:
        """The whole path of a file, by its number."""
        return f"{self.root}/{self.classes[self.labels[index]]}/{os.fsdecode(self.names[index])}"

    def link(self, index: int) -> str:
        """The symbolic link, below the folder, that leads to a file; empty if there is none."""
        path = Path(self.path(index))
        steps = (
            path,
            *(each for each in path.parents if each.is_relative_to(self.root) and each != self.root),
        )
        return next((str(each) for each in reversed(steps) if each.is_symlink()), "")

    def only(self, chosen: NDArray[np.int64]) -> FileList:
        """The same without the others of its files; these are not among those left out."""
        kept = {
            name: getattr(self, name)[chosen] for name in ("names", "sizes", "labels", "inodes", "linked")
        }
        return replace(self, **kept)

    @property
    def text(self) -> str:
        """How many images were found, and what was left out."""
        taken = len(self.names)
        others = sum(self.left_out.get(each, 0) for each in (LeftOut.LINKED, LeftOut.OUTSIDE))
        found = text_of(taken, taken + others, "images", self.left_out)
        return f"{self.root.name}/ {found}"


def class_folders(root: Path) -> list[str]:
    """Names of the folders in a folder, sorted, without hidden ones. Raises DataError."""
    return sorted(each.name for each in entries(root) if left_out_by_name(each) is None and each.is_dir())


def scan(root: Path) -> FileList:
    """Raises DataError for a folder that cannot be read, and for a class without images."""
    classes = class_folders(root)
    with ThreadPoolExecutor(READERS) as readers:
        found = list(readers.map(lambda name: contents(root / name, IMAGES), classes))
    for name, each in zip(classes, found):
        if not each.files:
            raise DataError(
                f"{root / name}: holds no {' '.join(IMAGE_SUFFIXES)} file; add images or remove the folder"
            )
    files = [file for each in found for file in each.files]
    return FileList(
        root,
        tuple(classes),
        names=np.array([os.fsencode(file.name) for file in files]),
        sizes=np.array([file.bytes for file in files], dtype=np.int64),
        labels=np.repeat(np.arange(len(classes)), [len(each.files) for each in found]),
        inodes=np.array([file.inode for file in files], dtype=np.uint64).reshape(-1, 2),
        linked=np.array([file.linked for file in files], dtype=np.bool_),
        left_out=sum((each.left_out for each in found), _beside_classes(root)),
    )


def _beside_classes(root: Path) -> Counter[LeftOut]:
    """What is in the folder itself and not in a class folder."""
    found: Counter[LeftOut] = Counter()
    for entry in entries(root):
        reason = left_out_by_name(entry)
        if reason is None and not entry.is_dir():
            reason = is_image(entry.path) or LeftOut.OUTSIDE
        if reason is not None:
            found[reason] += 1
    return found


def divide_by_name(listing: FileList) -> tuple[FileList, FileList]:
    """Files for training, and of each class a fifth for the test, which a hash of their names chooses: the
    same on every machine. Raises DataError for a class of fewer than LEAST_OF_A_CLASS images."""
    tested = []
    for label, name in enumerate(listing.classes):
        own = np.flatnonzero(listing.labels == label)
        if len(own) < LEAST_OF_A_CLASS:
            raise DataError(
                f"{listing.root / name}: holds {counted(len(own), 'image')}; at least {LEAST_OF_A_CLASS} are "
                f"needed, to train, to validate and to test with"
            )
        by_hash = sorted(own, key=lambda index: sha256(bytes(listing.names[index])).digest())
        tested.append(by_hash[: max(1, len(own) // TESTED_SHARE)])
    test = np.sort(np.concatenate(tested)).astype(np.int64)
    return listing.only(np.setdiff1d(np.arange(len(listing.labels)), test)), listing.only(test)


def check_files(listing: FileList) -> None:
    """Raises DataError for an empty file (of all), or one that cannot be decoded (of `CHECKED_FILES`)."""
    for index in np.flatnonzero(listing.sizes == 0)[:1]:
        raise DataError(f"{listing.path(index)}: is empty; download the data set again")
    total = len(listing.names)
    chosen = np.linspace(0, total - 1, min(total, CHECKED_FILES)).astype(np.int64)
    with ThreadPoolExecutor(READERS) as readers:
        faults = [
            fault for fault in readers.map(_fault, (Path(listing.path(index)) for index in chosen)) if fault
        ]
    if faults:
        raise DataError(first_few(list(dict.fromkeys(faults))))  # a broken Pillow says the same of each


def _fault(path: Path) -> str:
    """Why a file cannot be decoded, in one line; empty if it can. An error would hide those of later files
    from the pool."""
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
