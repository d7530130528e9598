"""Images for training, validation and test: checked before the clock starts, ready before they are needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from aiperf.config import DataConfig
from aiperf.data.cifar10 import load_cifar10, look_at_cifar10
from aiperf.data.digits import load_digits_set
from aiperf.data.found import Look, divided
from aiperf.data.idx import load_idx, look_at_idx
from aiperf.data.imagefolder import load_imagefolder, look_at_imagefolder
from aiperf.data.split import Batch, Data, Split
from aiperf.data.synthetic import load_synthetic
from aiperf.errors import DataError

__all__ = ["Batch", "Data", "Split", "load", "look"]

LOOKS: Mapping[str, Callable[[Path], Look]] = {
    "idx": look_at_idx,
    "cifar10": look_at_cifar10,
    "imagefolder": look_at_imagefolder,
}
"""By the name of what lies in a folder."""


def load(config: DataConfig, device: torch.device, seed: int, local_ranks: int = 1) -> Data:
    """Reads and checks the whole set and puts it where training reads it.

    `seed` makes the generated images of `synthetic`; real images are split alike in every run.
    `local_ranks` on this host share its cores for decoding, unless each is bound to cores of its own.
    Raises DataError, which names the file, what is wrong and the remedy.
    """
    if config.name in LOOKS and not Path(config.path or "?").is_dir():
        raise DataError(
            f"data.path is {config.path!r}, which is no folder; set it to the folder of the {config.name} "
            "files"
        )
    if config.name == "digits":
        return load_digits_set(config, device)
    kinds = _kinds(Path(config.path)) if config.name in LOOKS else ()
    if kinds and config.name not in kinds:
        found = LOOKS[kinds[0]](Path(config.path))
        divided(config, found.training, found.test)  # refuses the name, with all else that does not fit
    if config.name == "idx":
        return load_idx(config, device)
    if config.name == "cifar10":
        return load_cifar10(config, device)
    if config.name == "imagefolder":
        return load_imagefolder(config, device, local_ranks)
    assert config.name == "synthetic", config.name
    return load_synthetic(config, device, seed)


def look(folder: Path) -> Look:
    """What lies in a folder, by names and headers. Raises DataError, also where it is no set that is read."""
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder; give the folder of your images by --data")
    kinds = _kinds(folder)
    if len(kinds) > 1:
        raise DataError(f"{folder}: holds {' and '.join(kinds)}; say which by --set data.name=, or part them")
    if not kinds:
        raise DataError(
            f"{folder}: holds neither a folder train/ with a folder for each class, nor IDX files "
            "(train-images-idx3-ubyte and so on), nor CIFAR-10 (test_batch.bin); give the folder that does"
        )
    return LOOKS[kinds[0]](folder)


def _kinds(folder: Path) -> tuple[str, ...]:
    """Each `data.name` that the names in a folder call for."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError as error:
        raise DataError(f"{folder}: {error.strerror}; make it readable") from None
    there = {
        "imagefolder": "train" in names,
        "idx": any(name.removesuffix(".gz").endswith("ubyte") for name in names),
        "cifar10": not {"test_batch.bin", "test_batch.png"}.isdisjoint(names),
    }
    return tuple(kind for kind, is_there in there.items() if is_there)
