"""A folder of packed images as a set that is trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from aiperf.data.decode import EVALUATED_SHARE
from aiperf.data.found import Found, Look, divided
from aiperf.data.imagefolder import SIDES, spare_cores
from aiperf.data.manifest import Counts, manifest
from aiperf.data.normalise import imagenet
from aiperf.data.packed.maps import Maps
from aiperf.data.packed.readers import Readers
from aiperf.data.packed.shards import MANIFEST, Packed, PackedPart, check_sizes, read_manifest
from aiperf.data.packed.split import PackedSplit
from aiperf.data.packed.staging import staged
from aiperf.data.split import Data
from aiperf.tasks.data import DataConfig


def load_packed(config: DataConfig, device: torch.device, local_ranks: int) -> Data:
    """Training is divided as that of the image folder would be: the same images validate."""
    folder = Path(config.path)
    packed = read_manifest(folder)
    training, test = _found(folder, packed)
    chosen, held_back = divided(config, training, test)
    if config.stage:
        folder = staged(folder, packed, Path(config.stage))
    check_sizes(folder, packed)

    normalisation = imagenet(config.channels).to(device)
    readers = Readers(config.loader_processes or spare_cores(local_ranks), config.size)
    train, tested = (
        Maps(folder, packed, name, part) for name, part in (("train", packed.train), ("test", packed.test))
    )
    everything = np.arange(len(test.labels))
    parts = (
        (train, training, chosen, config.augmentation != "none"),
        (train, training, held_back, False),
        (tested, test, everything, False),
    )
    train_split, validation, test_split = (
        PackedSplit(maps, part.labels, which, readers, normalisation, augmented)
        for maps, part, which, augmented in parts
    )
    by_class = (np.bincount(part.labels[which], minlength=config.classes) for _, part, which, _ in parts)
    counts = Counts(*(numbers.tolist() for numbers in by_class))
    told = manifest(config, counts, packed.source_sha256, len(training.labels))
    return Data(train_split, validation, test_split, told | {"packed": facts(packed)})


def look_at_packed(folder: Path) -> Look:
    """By its manifest alone. Raises DataError."""
    packed = read_manifest(folder)
    size = int(packed.side * EVALUATED_SHARE)
    training, test = _found(folder, packed)
    return Look(training, test, packed.channels, max(size - size % SIDES, SIDES))


def facts(packed: Packed) -> dict[str, object]:
    """What a run's manifest says of the packing: all that its pixels follow from, and their hash."""
    return {
        "side": packed.side,
        "resize": packed.resize,
        "filter": packed.filter,
        "decoder": packed.decoder,
        "shards": len(packed.shards),
        "sha256": packed.sha256,
    }


def _found(folder: Path, packed: Packed) -> tuple[Found, Found]:
    def found(part: PackedPart) -> Found:
        return Found(
            "packed",
            str(folder / MANIFEST),
            part.labels,
            (packed.channels,),
            ("none", "resized-crop-flip"),
            f"{len(packed.classes)} classes",
            packed.side,
        )

    return found(packed.train), found(packed.test)
