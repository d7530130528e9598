"""Where images come from, by `data.name`; and which kind of set a folder holds, by its names and headers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from aiperf.data.arrays import split_official
from aiperf.data.cifar10 import look_at_cifar10, read_cifar10, refuse_pickled
from aiperf.data.digits import load_digits_set
from aiperf.data.folder_contents import left_out_by_name, visible_names
from aiperf.data.idx import look_at_idx, read_idx
from aiperf.data.imagefolder import is_undivided, load_imagefolder, look_at_imagefolder
from aiperf.data.packed.loading import load_packed, look_at_packed
from aiperf.data.packed.shards import MANIFEST, is_packed
from aiperf.data.parts import SetFacts, divide
from aiperf.data.splits import Data
from aiperf.data.synthetic import load_synthetic
from aiperf.data.training import Destination
from aiperf.errors import DataError
from aiperf.os_error import unreadable
from aiperf.tasks.data import DataConfig


class DataSource(NamedTuple):
    """Where images come from: what a value of `data.name` stands for."""

    load: Callable[[DataConfig, Destination], Data]
    """Reads and checks the whole set. Raises DataError."""
    look: Callable[[Path], SetFacts] | None = None
    """The facts that the files in a folder tell; None if it reads none."""


SOURCES: Mapping[str, DataSource] = {
    "digits": DataSource(lambda config, to: load_digits_set(config, to.device)),
    "idx": DataSource(
        lambda config, to: split_official(config, to.device, *read_idx(Path(config.path))), look_at_idx
    ),
    "cifar10": DataSource(
        lambda config, to: split_official(config, to.device, *read_cifar10(Path(config.path))),
        look_at_cifar10,
    ),
    "imagefolder": DataSource(
        lambda config, to: load_imagefolder(config, to.device, to.local_ranks), look_at_imagefolder
    ),
    "packed": DataSource(lambda config, to: load_packed(config, to.device, to.local_ranks), look_at_packed),
    "synthetic": DataSource(lambda config, to: load_synthetic(config, to.device, to.seed)),
}
"""By `data.name`."""
TEXT_REMEDY = "for text, use --preset text --data PATH"


def load_images(config: DataConfig, to: Destination) -> Data:
    """Raises DataError, which names the file, what is wrong and the remedy."""
    source = SOURCES[config.name]
    if source.look is not None:
        _refuse_another_set(config)
    return source.load(config, to)


def _refuse_another_set(config: DataConfig) -> None:
    """Raises DataError if the folder does not exist, or holds what another `data.name` stands for."""
    folder = Path(config.path)
    if not folder.is_dir():
        raise DataError(
            f"data.path is {config.path!r}, which is not a folder; give the folder of the images with --data"
        )
    kinds = _kinds(folder)
    if kinds and config.name not in kinds:
        found = _look(kinds[0], folder)
        divide(config, found.training, found.test)  # refuses the name, with all else that does not fit


def look(folder: Path) -> SetFacts:
    """What lies in a folder, by names and headers. Raises DataError, also for a folder without a known
    set."""
    if folder.is_file():
        raise DataError(f"{folder} is a file; {TEXT_REMEDY}; for images, give their folder")
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give the folder of your images with --data")
    kinds = _kinds(folder)
    if len(kinds) > 1:
        raise DataError(
            f"{folder}: holds {' and '.join(kinds)}; choose one with --set data.name=, or separate them"
        )
    if not kinds:
        refuse_pickled(folder)
        below = _set_below(folder)
        remedy = f"give {below}, which does" if below else "give a folder that does"
        raise DataError(
            f"{folder}: contains neither a folder of images for each class, nor train/ with such folders, "
            "nor IDX files (train-images-idx3-ubyte and so on), nor CIFAR-10 (test_batch.bin), nor packed "
            f"images ({MANIFEST}); {remedy}; {TEXT_REMEDY}"
        )
    return _look(kinds[0], folder)


def _set_below(folder: Path) -> Path | None:
    """A folder in this one that holds a set; None if there is none, or if some of them cannot be read."""
    try:
        with os.scandir(folder) as found:
            inside = sorted(
                entry.path for entry in found if entry.is_dir() and left_out_by_name(entry) is None
            )
        return next((Path(each) for each in inside if _kinds(Path(each))), None)
    except (OSError, DataError):
        return None


def _look(kind: str, folder: Path) -> SetFacts:
    """The facts of a folder whose kind is known, one with files."""
    look_at = SOURCES[kind].look
    assert look_at is not None, kind
    return look_at(folder)


def _kinds(folder: Path) -> tuple[str, ...]:
    """Each `data.name` that the names in a folder call for; several if sets lie side by side."""
    try:
        names = visible_names(folder)
        packed = is_packed(folder)  # which looks into files, and may read the names alone
    except OSError as error:
        raise DataError(unreadable(error, folder)) from None
    there = {
        "imagefolder": "train" in names or (not packed and is_undivided(folder)),
        "idx": any(name.removesuffix(".gz").endswith("ubyte") for name in names),
        "packed": packed,
        "cifar10": not {"test_batch.bin", "test_batch.png"}.isdisjoint(names),
    }
    return tuple(kind for kind, is_there in there.items() if is_there)
