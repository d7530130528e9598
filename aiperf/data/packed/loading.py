"""A folder of packed images as a set that is trained on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aiperf.data.contradictions import Found, Look, divided
from aiperf.data.decode import EVALUATED_SHARE
from aiperf.data.imagefolder import SIDES, spare_cores
from aiperf.data.manifest import Counts, manifest
from aiperf.data.normalise import Normalisation, imagenet
from aiperf.data.order import Order
from aiperf.data.packed.readers import Readers, Shown
from aiperf.data.packed.shards import MANIFEST, Maps, Packed, PackedPart, check_sizes, read_manifest
from aiperf.data.packed.staging import staged
from aiperf.data.reused_memory import ReusedMemory
from aiperf.data.splits import Batch, Data, Split, Stage, share, share_of_step
from aiperf.tasks.data import DataConfig
from nas.portable.preparation import ImagePreparation

AHEAD = 3
"""Steps that are read ahead. With the images of the first the readers are done while one trains."""


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
    mean, deviation = normalisation.mean, normalisation.deviation
    steps = ImagePreparation(config.size, mean, deviation, EVALUATED_SHARE, packed.side)
    return Data(train_split, validation, test_split, told | {"packed": facts(packed)}, preparation=steps)


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


class _Read(NamedTuple):
    """Images under way, bytes (n, size, size, channels), and their labels (n,)."""

    images: Tensor
    labels: Tensor
    pieces: Sequence[Future[None]]


class PackedSplit(Split):
    """Some images of a part. They are cut and scaled on the host, and normalised on the device.

    So the device gets bytes of the size that is shown, which are the same whatever device it is.
    """

    def __init__(
        self,
        maps: Maps,
        labels: NDArray[np.int64],
        chosen: NDArray[np.int64],
        readers: Readers,
        normalisation: Normalisation,
        augmented: bool,
    ) -> None:
        self.num_examples = len(chosen)
        self._maps, self._readers, self._normalisation = maps, readers, normalisation
        self._labels, self._chosen = torch.from_numpy(labels[chosen]), torch.from_numpy(chosen)
        self._augmented = augmented
        device = normalisation.scale.device
        pinned = device.type not in ("cpu", "mps")
        self._bytes, self._pinned = ReusedMemory(torch.uint8, pinned), pinned
        self._floats = None if device.type != "cpu" else ReusedMemory(torch.float32, pinned=False)

    def stream(self, batch_size: int, seed: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        mine = share_of_step(batch_size, rank, ranks)

        def steps() -> Iterator[_Read]:
            order = Order(self.num_examples, seed)
            for step in count():
                first = step * batch_size + mine.start
                images, _ = order.take(first, first + mine.stop - mine.start)
                yield self._begun(images, f"{seed}/" if self._augmented else "", first)

        return self._ahead(steps())

    def sweep(self, batch_size: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        mine = share(self.num_examples, rank, ranks)
        size = max(1, batch_size // ranks)
        starts = range(mine.start, mine.stop, size)
        return self._ahead(
            self._begun(torch.arange(first, min(first + size, mine.stop)), "", 0) for first in starts
        )

    def stages(self, images: int) -> Sequence[Stage]:
        chosen, _ = Order(self.num_examples, seed=0).take(0, images)
        shown = self._shown(chosen, "0/" if self._augmented else "", 0)
        size, channels = self._readers.size, len(self._normalisation.scale)
        buffer = self._bytes.take(len(shown), size, size, channels)

        def read() -> None:
            for one in shown:
                self._maps[one.image].copy()

        return (
            Stage("reading", read, self._readers.threads),
            Stage(
                "augmenting",
                lambda: self._readers.fill_here(self._maps, shown, buffer),
                self._readers.threads,
            ),
            Stage("normalising", lambda: self._normalised(buffer), 1),
        )

    def _shown(self, images: Tensor, draws: str, first: int) -> list[Shown]:
        """`draws`: of the pass; each image has the number of its place as well."""
        return [
            Shown(image, draws and f"{draws}{place}")
            for place, image in enumerate(self._chosen[images].tolist(), start=first)
        ]

    def _normalised(self, pixels: Tensor) -> Tensor:
        """Turns bytes on the host into float32 on the device, (n, size, size, channels)."""
        images = pixels.to(self._normalisation.scale.device, non_blocking=self._pinned)
        if self._floats is None:
            return self._normalisation(images)
        return self._normalisation.into(images, self._floats.take(*images.shape))

    def _begun(self, images: Tensor, draws: str, first: int) -> _Read:
        shown = self._shown(images, draws, first)
        size, channels = self._readers.size, len(self._normalisation.scale)
        buffer = self._bytes.take(len(shown), size, size, channels)
        labels = self._labels[images]
        labels = labels.pin_memory() if self._pinned else labels
        return _Read(buffer, labels, self._readers.fill(self._maps, shown, buffer))

    def _ahead(self, steps: Iterator[_Read]) -> Iterator[Batch]:
        """Reading begins at once, before the first batch is asked for."""
        return self._batches(deque(islice(steps, AHEAD)), steps)

    def _batches(self, begun: deque[_Read], steps: Iterator[_Read]) -> Iterator[Batch]:
        device = self._normalisation.scale.device
        while begun:
            step = begun.popleft()
            for piece in step.pieces:
                piece.result()
            labels = step.labels.to(device, non_blocking=self._pinned)
            yield self._normalised(step.images).permute(0, 3, 1, 2), labels
            begun.extend(islice(steps, 1))
