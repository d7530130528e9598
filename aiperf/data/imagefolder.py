"""Folders of JPEG and PNG files, one folder per class: ImageNet's layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, count, repeat
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aiperf.data.decode import EVALUATED_SHARE, MODES, decoder_name, header
from aiperf.data.decoders import Decoded, Decoders
from aiperf.data.decoding_process import ClassFolders, DecodeRequest, Decoding
from aiperf.data.file_list import FileList, check_files, class_folders, divide_by_name, fingerprint, scan
from aiperf.data.folder_contents import entries, is_image
from aiperf.data.host_share import ReusedMemory, spare_cores
from aiperf.data.normalise import Normalisation, imagenet
from aiperf.data.parts import PartFacts, SetFacts, divide, shown_side
from aiperf.data.splits import Batch, Data, Order, Split, Stage, image_manifest, share_of_step
from aiperf.errors import DataError
from aiperf.tasks.data import DataConfig
from aiperf.wording import percent
from nas.modules import to_device
from nas.portable.preparation import ImagePreparation

DRAFT = "resized-crop-flip-draft"
"""The augmentation whose crops are decoded at the least scale that they allow."""
LOOKED_AT = 200
"""Training images that are looked at, evenly spread: enough for a median."""
ANNOTATIONS = "val/val_annotations.txt"
"""Where Tiny ImageNet states the classes of its validation images, which are not in folders of their
classes."""


class FolderSplit(Split):
    """Some images of a listing, decoded as they are needed."""

    def __init__(
        self,
        listing: FileList,
        folder: int,
        chosen: NDArray[np.int64],
        decoders: Decoders,
        normalisation: Normalisation,
        augmented: bool,
    ) -> None:
        """`folder` is the listing's number among the folders of the decoders."""
        self.num_examples = len(chosen)
        self._listing, self._folder = listing, folder
        self._chosen = chosen
        self._decoders = decoders
        self._normalisation = normalisation
        self._augmented = augmented
        self._floats = ReusedMemory(torch.float32, pinned=False)

    def stream(self, batch_size: int, seed: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        mine = share_of_step(batch_size, rank, ranks)
        size = mine.stop - mine.start
        # Small steps are requested together, because each request costs the process that trains some time.
        together = max(1, self._decoders.images // size)

        def plan() -> Iterator[DecodeRequest]:
            order = Order(self.num_examples, seed)
            for start in count(0, together * batch_size):
                places = np.arange(start, start + together * batch_size)
                images = order.take(start, start + together * batch_size)[0].numpy()
                # Of each step this rank's share; the places are those of the whole group, so that a crop does
                # not depend on the number of ranks.
                images, places = (
                    each.reshape(together, batch_size)[:, mine].ravel() for each in (images, places)
                )
                yield from self._requests(images, places, self._draws(seed))

        return self._batches(self._decoders.run(plan()), repeat(size))

    def sweep(self, batch_size: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        batches = list(self.sweep_batches(batch_size, rank, ranks))
        images = np.fromiter(chain.from_iterable(batches), np.int64)
        return self._batches(self._decoders.run(self._requests(images, images, "")), map(len, batches))

    def stages(self, images: int) -> Sequence[Stage]:
        chosen, _ = Order(self.num_examples, seed=0).take(0, images)
        request = self._request(chosen.numpy(), np.arange(images), self._draws(0))
        pixels = self._decoders.here(request).to(self._normalisation.scale.device)
        return (
            Stage("decoding", lambda: self._decoders.here(request), self._decoders.processes),
            Stage("normalising", lambda: self._normalisation(pixels), 1),
        )

    def _draws(self, seed: int) -> str:
        """What the crops and flips of a stream with this seed are drawn from; empty if images are shown as
        they are."""
        return f"{seed}/" if self._augmented else ""

    def _requests(
        self, images: NDArray[np.int64], places: NDArray[np.int64], draws: str
    ) -> Iterator[DecodeRequest]:
        """Cuts images and their places in the stream into requests of at most as many as the decoders take
        at once."""
        most = self._decoders.images
        for first in range(0, len(images), most):
            yield self._request(images[first : first + most], places[first : first + most], draws)

    def _request(self, images: NDArray[np.int64], places: NDArray[np.int64], draws: str) -> DecodeRequest:
        """The request for some images, by their numbers in this split."""
        files = self._chosen[images]
        return DecodeRequest(
            self._folder, self._listing.names[files], self._listing.labels[files], draws, places
        )

    def _batches(self, decoded: Iterator[Decoded], sizes: Iterator[int]) -> Iterator[Batch]:
        """Cuts decoded requests into batches of these sizes: a batch may be a part of a request, or have
        images of several."""
        device, side = self._normalisation.scale.device, self._decoders.decoding.size
        request, used = Decoded(torch.empty(0), np.empty(0, np.int64)), 0
        for size in sizes:
            images = self._memory(size, side, side, self._decoders.decoding.channels)
            labels, first = list[NDArray[np.int64]](), 0
            while first < size:
                if used == len(request.labels):
                    request, used = next(decoded), 0
                end = min(first + len(request.labels) - used, size)
                part = slice(used, used + end - first)
                self._show(request.images[part], images[first:end])
                labels.append(request.labels[part])
                first, used = end, part.stop
            shown = images if device.type == "cpu" else self._normalisation(images)
            targets = torch.from_numpy(np.concatenate(labels))
            yield shown.permute(0, 3, 1, 2), to_device(targets, device)

    def _memory(self, *shape: int) -> Tensor:
        """Floats on the host; bytes on a device, which normalises them."""
        device = self._normalisation.scale.device
        if device.type == "cpu":
            return self._floats.take(*shape)
        return torch.empty(shape, dtype=torch.uint8, device=device)

    def _show(self, images: Tensor, out: Tensor) -> None:
        """Writes bytes into a part of a batch: normalised on a CPU; for a device copied, while the host
        goes on."""
        if out.device.type == "cpu":
            self._normalisation.into(images, out)
        else:
            out.copy_(images, non_blocking=True)


def load_imagefolder(config: DataConfig, device: torch.device, local_ranks: int) -> Data:
    """`train/` is divided into training and validation; `test/`, else `val/`, is the official test part."""
    # The configuration is compared with the names before any file is opened.
    training, test = list_files(Path(config.path))
    chosen, held_back = divide(config, _facts(training), _facts(test))
    for listing in (training, test):
        check_files(listing)

    draft = config.augmentation == DRAFT
    decoding = Decoding(
        [ClassFolders(str(listing.root), listing.classes) for listing in (training, test)],
        config.channels,
        config.size,
        max(listing.names.itemsize for listing in (training, test)),
        draft,
    )
    decoders = Decoders(decoding, config.loader_processes or spare_cores(local_ranks), device)
    normalisation = imagenet(config.channels).to(device)
    splits = (
        FolderSplit(training, 0, chosen, decoders, normalisation, config.augmentation != "none"),
        FolderSplit(training, 0, held_back, decoders, normalisation, augmented=False),
        FolderSplit(test, 1, np.arange(len(test.labels)), decoders, normalisation, augmented=False),
    )
    labels = (training.labels[chosen], training.labels[held_back], test.labels)
    manifest = image_manifest(config, labels, fingerprint(training, test), len(training.labels))
    if draft:
        manifest["draft"] = {"part": "training", "decoder": decoder_name()}
    steps = ImagePreparation(config.size, normalisation.mean, normalisation.deviation, EVALUATED_SHARE)
    return Data(*splits, manifest, _note(training, test), steps)


def _note(training: FileList, test: FileList) -> str:
    """How many images were read and what was left out, for the user."""
    if training.root != test.root:
        return f"{training.text}. {test.text}"
    kept = percent(len(test.names) / (len(training.names) + len(test.names)), 0)
    return f"{training.text}. Kept for the test by a hash of the names: {len(test.names):,} images, {kept}"


def look_at_imagefolder(root: Path) -> SetFacts:
    """The facts that all names and the headers of some training images tell. Raises DataError."""
    training, test = list_files(root)
    return SetFacts(_facts(training), _facts(test), *channels_and_side(training))


def channels_and_side(listing: FileList) -> tuple[int, int]:
    """The number of channels and the side in pixels in which images are shown: one channel if all that are
    looked at are grey, and the median of their shorter sides. Raises DataError."""
    total = len(listing.names)
    some = np.linspace(0, total - 1, min(total, LOOKED_AT)).astype(np.int64)
    headers = [header(Path(listing.path(index))) for index in some]
    side = int(np.median([min(width, height) for _, width, height in headers]))
    return 1 if all(grey for grey, _, _ in headers) else 3, shown_side(side)


def list_files(root: Path) -> tuple[FileList, FileList]:
    """The files of training and test. Raises DataError for folders that are no such set."""
    if not (root / "train").is_dir():
        if not is_undivided(root):
            raise DataError(
                f"{root}: has no folder train/; set data.path to the folder that contains train/ and val/ or "
                f"test/, or only a folder with images for each class"
            )
        whole = scan(root)
        _refuse_twins(whole, whole, "of two classes")
        return divide_by_name(whole)
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
    """Raises DataError if a file of `one` is a file of `other`, too, by a link; within one part, only if
    its class differs. Inodes alone prove nothing: some file systems make them up."""
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


def _facts(listing: FileList) -> PartFacts:
    """What the list of files tells. The pixels of any file can be shown grey or in colour."""
    return PartFacts(
        "imagefolder",
        str(listing.root),
        listing.labels,
        tuple(MODES),
        ("none", "resized-crop-flip", DRAFT),
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
