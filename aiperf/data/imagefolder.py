"""Folders of JPEG and PNG files, a folder a class: ImageNet's layout."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import count, repeat
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from aiperf.cores import allowed_cores
from aiperf.data.contradictions import Found, Look, divided
from aiperf.data.decode import EVALUATED_SHARE, MODES, header
from aiperf.data.decoders import PIECE, Decoders, Item, Piece
from aiperf.data.file_list import FileList, check_files, class_folders, divided_by_name, fingerprint, scan
from aiperf.data.folder_contents import entries, is_image
from aiperf.data.manifest import Counts, manifest
from aiperf.data.normalise import Normalisation, imagenet
from aiperf.data.order import Order
from aiperf.data.splits import Batch, Data, Split, Stage, share, share_of_step
from aiperf.errors import DataError
from aiperf.tasks.data import DataConfig
from aiperf.wording import percent
from nas.portable.preparation import ImagePreparation

LOOKED_AT = 200
"""Training images that are looked at, evenly spread: enough for a median."""
ANNOTATIONS = "val/val_annotations.txt"
"""Where Tiny ImageNet states the classes of its validation images, which are not in folders of their
classes."""
SIDES = 8
"""Images are shown at a multiple of it, so that a network can halve them three times."""


class FolderSplit(Split):
    """Some images of a listing, decoded as they are needed."""

    def __init__(
        self,
        listing: FileList,
        chosen: NDArray[np.int64],
        decoders: Decoders,
        normalisation: Normalisation,
        augmented: bool,
    ) -> None:
        self.num_examples = len(chosen)
        self._listing = listing
        self._chosen = chosen
        self._decoders = decoders
        self._normalisation = normalisation
        self._augmented = augmented

    def stream(self, batch_size: int, seed: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        mine = share_of_step(batch_size, rank, ranks)

        def plan() -> Iterator[list[Item]]:
            order = Order(self.num_examples, seed)
            for step in count():
                first = step * batch_size + mine.start
                images, _ = order.take(first, first + mine.stop - mine.start)
                places = count(first)
                yield from _pieces(
                    [self._item(image, f"{seed}/{place}") for image, place in zip(images.tolist(), places)]
                )

        return self._batches(self._decoders.run(plan()), repeat(mine.stop - mine.start))

    def sweep(self, batch_size: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        mine = share(self.num_examples, rank, ranks)
        size = max(1, batch_size // ranks)
        batches = [range(first, min(first + size, mine.stop)) for first in range(mine.start, mine.stop, size)]
        plan = (piece for batch in batches for piece in _pieces([self._item(image, "") for image in batch]))
        return self._batches(self._decoders.run(plan), map(len, batches))

    def stages(self, images: int) -> Sequence[Stage]:
        chosen, _ = Order(self.num_examples, seed=0).take(0, images)
        items = [self._item(image, f"0/{place}") for place, image in enumerate(chosen.tolist())]
        pixels = self._decoders.here(items).to(self._normalisation.scale.device)
        return (
            Stage("decoding", lambda: self._decoders.here(items), self._decoders.processes),
            Stage("normalising", lambda: self._normalisation(pixels), 1),
        )

    def _item(self, image: int, draws: str) -> Item:
        index = int(self._chosen[image])
        moved = draws if self._augmented else ""
        return Item(self._listing.path(index), int(self._listing.labels[index]), moved)

    def _batches(self, pieces: Iterator[Piece], sizes: Iterator[int]) -> Iterator[Batch]:
        """Piece by piece onto the device: from pinned memory, so that nothing waits for the copies."""
        device = self._normalisation.scale.device
        for size in sizes:
            parts = [next(pieces) for _ in range(-(-size // PIECE))]
            images, labels = (
                torch.cat([part.to(device, non_blocking=True) for part in kind]) for kind in zip(*parts)
            )
            yield self._normalisation(images).permute(0, 3, 1, 2), labels


def load_imagefolder(config: DataConfig, device: torch.device, local_ranks: int) -> Data:
    """`train/` is divided into training and validation; `test/`, else `val/`, is the official test part."""
    training, test = listed(Path(config.path))
    chosen, held_back = divided(config, _found(training), _found(test))
    for listing in (training, test):
        check_files(listing)

    processes = config.loader_processes or spare_cores(local_ranks)
    decoders = Decoders(config.channels, config.size, processes, pin=device.type not in ("cpu", "mps"))
    normalisation = imagenet(config.channels).to(device)
    augmented = config.augmentation != "none"
    everything = np.arange(len(test.labels))
    parts = ((training, chosen, augmented), (training, held_back, False), (test, everything, False))
    train, validation, tested = (
        FolderSplit(files, which, decoders, normalisation, moved) for files, which, moved in parts
    )
    by_class = (np.bincount(files.labels[which], minlength=config.classes) for files, which, _ in parts)
    counts = Counts(*(numbers.tolist() for numbers in by_class))
    told = manifest(config, counts, fingerprint(training, test), len(training.labels))
    steps = ImagePreparation(config.size, normalisation.mean, normalisation.deviation, EVALUATED_SHARE)
    return Data(train, validation, tested, told, _note(training, test), steps)


def _note(training: FileList, test: FileList) -> str:
    if training.root != test.root:
        return f"{training.text}. {test.text}"
    kept = percent(len(test.names) / (len(training.names) + len(test.names)), 0)
    return f"{training.text}. Kept for the test by a hash of the names: {len(test.names):,} images, {kept}"


def look_at_imagefolder(root: Path) -> Look:
    """By all names, and the headers of some images of training. Raises DataError."""
    training, test = listed(root)
    total = len(training.names)
    some = np.linspace(0, total - 1, min(total, LOOKED_AT)).astype(np.int64)
    headers = [header(Path(training.path(index))) for index in some]
    side = int(np.median([min(width, height) for _, width, height in headers]))
    channels = 1 if all(grey for grey, _, _ in headers) else 3
    return Look(_found(training), _found(test), channels, max(side - side % SIDES, SIDES))


def _pieces(items: list[Item]) -> Iterator[list[Item]]:
    return (items[first : first + PIECE] for first in range(0, len(items), PIECE))


def listed(root: Path) -> tuple[FileList, FileList]:
    """The files of training and test. Raises DataError for folders that are no such set."""
    if not (root / "train").is_dir():
        if not is_undivided(root):
            raise DataError(
                f"{root}: has no folder train/; set data.path to the folder that contains train/ and val/ or "
                f"test/, or only a folder with images for each class"
            )
        whole = scan(root)
        _refuse_twins(whole, whole, "of two classes")
        return divided_by_name(whole)
    training_folder, test_folder = root / "train", _test_folder(root)
    if training_folder.samefile(test_folder):
        raise DataError(f"{test_folder}: is the same as train/; put the official test images there")
    training, test = scan(training_folder), scan(test_folder)
    for name, one, other in (("train", training, test), (test.root.name, test, training)):
        for missing in sorted(set(one.classes) - set(other.classes)):
            raise DataError(
                f"{other.root}: class folder {missing!r} of {name}/ is missing; add it, or remove it from "
                f"the other part"
            )
    if len(training.classes) < 2:
        raise DataError(f"{training.root}: only one class folder; add those of the other classes")
    _refuse_shared(training, test)
    return training, test


def is_undivided(root: Path) -> bool:
    """Whether a folder holds folders of images, one per class, and no parts. Raises DataError."""
    folders = class_folders(root)
    return {"train", "test", "val"}.isdisjoint(folders) and sum(
        any(is_image(entry.path) is None and entry.is_file() for entry in entries(root / name))
        for name in folders
    ) > 1


def _refuse_shared(training: FileList, test: FileList) -> None:
    """Raises DataError for a link that makes an image of training one of the test, or gives it two
    classes."""
    _refuse_twins(training, test, "trained on and tested with")
    for part in (training, test):
        _refuse_twins(part, part, "of two classes")


def _refuse_twins(one: FileList, other: FileList, meaning: str) -> None:
    if not (one.linked.any() or other.linked.any()):
        return
    own = {file: index for index, file in enumerate(map(tuple, one.inodes.tolist()))}
    for index, file in enumerate(map(tuple, other.inodes.tolist())):
        twin = own.get(file, index if one is other else None)
        if twin is None or (one is other and one.labels[twin] == one.labels[index]):
            continue
        if one.linked[twin] or other.linked[index]:
            link = other.link(index) or one.link(twin)
            raise DataError(
                f"{other.path(index)}: is the same file as {one.path(twin)}, so it would be {meaning}; "
                f"remove {f'the link {link}' if link else 'one of them'}"
            )


def _found(listing: FileList) -> Found:
    return Found(
        "imagefolder",
        str(listing.root),
        listing.labels,
        tuple(MODES),
        ("none", "resized-crop-flip"),
        f"{len(listing.classes)} class folders",
        names=listing.classes,
    )


def _test_folder(root: Path) -> Path:
    """The first of test/ and val/ that has class folders of train/. ImageNet's own test/ has none, and Tiny
    ImageNet's has one folder with all images. Raises DataError."""
    classes = class_folders(root / "train")
    if not classes:
        raise DataError(
            f"{root / 'train'}: has no class folders; put each image into the folder of its class"
        )
    for folder in (root / "test", root / "val"):
        if folder.is_dir() and not set(classes).isdisjoint(class_folders(folder)):
            return folder
    listed = f" ({ANNOTATIONS} lists the classes)" if (root / ANNOTATIONS).exists() else ""
    raise DataError(
        f"{root}: neither test/ nor val/ contains class folders of train/, such as {classes[0]}/; put each "
        f"official test image into the folder of its class, as in val/{classes[0]}/{listed}"
    )


def spare_cores(local_ranks: int) -> int:
    """Cores of this rank less one: those it is bound to, else its share of the host's."""
    host, bound = os.cpu_count() or 1, allowed_cores()
    return max(1, (bound if bound < host else host // local_ranks) - 1)
