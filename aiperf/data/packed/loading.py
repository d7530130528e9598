"""A folder of packed images as a set that is trained on: threads cut images out of mapped shards, ahead of
the training that asks for them."""

from __future__ import annotations

import random
import threading
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from aiperf.data.decode import EVALUATED_SHARE, random_box
from aiperf.data.host_share import ReusedMemory, spare_cores
from aiperf.data.normalise import Normalisation, imagenet
from aiperf.data.packed.shards import MANIFEST, Maps, Packed, PackedPart, check_sizes, read_manifest
from aiperf.data.packed.staging import stage_shards
from aiperf.data.parts import PartFacts, SetFacts, divide, shown_side
from aiperf.data.splits import Batch, Data, Order, Split, Stage, image_manifest, share_of_step
from aiperf.tasks.data import DataConfig
from nas.portable.preparation import ImagePreparation

AHEAD = 3
"""Steps that are read ahead. With the images of the first the readers are done while one trains."""
PIECE = 32
"""Images that a thread takes at a time, so that several threads fill one step."""


def load_packed(config: DataConfig, device: torch.device, local_ranks: int) -> Data:
    """Training is divided as that of the image folder would be: the same images validate."""
    folder = Path(config.path)
    packed = read_manifest(folder)
    training, test = _facts(folder, packed)
    chosen, held_back = divide(config, training, test)
    if config.stage:
        folder = stage_shards(folder, packed, Path(config.stage))
    check_sizes(folder, packed)

    normalisation = imagenet(config.channels).to(device)
    readers = Readers(config.loader_processes or spare_cores(local_ranks), config.size)
    train, tested = (
        Maps(folder, packed, name, part) for name, part in (("train", packed.train), ("test", packed.test))
    )
    labels = (training.labels[chosen], training.labels[held_back], test.labels)
    splits = (
        PackedSplit(train, labels[0], chosen, readers, normalisation, config.augmentation != "none"),
        PackedSplit(train, labels[1], held_back, readers, normalisation, augmented=False),
        PackedSplit(tested, labels[2], np.arange(len(test.labels)), readers, normalisation, augmented=False),
    )
    manifest = image_manifest(config, labels, packed.source_sha256, len(training.labels))
    manifest["packed"] = packing_facts(packed)
    mean, deviation = normalisation.mean, normalisation.deviation
    steps = ImagePreparation(config.size, mean, deviation, EVALUATED_SHARE, packed.side)
    return Data(*splits, manifest, preparation=steps)


def look_at_packed(folder: Path) -> SetFacts:
    """The facts that the manifest of packed images tells. Raises DataError."""
    packed = read_manifest(folder)
    side = shown_side(int(packed.side * EVALUATED_SHARE))
    return SetFacts(*_facts(folder, packed), packed.channels, side)


def packing_facts(packed: Packed) -> dict[str, object]:
    """What a run's manifest says of the packing: all that its pixels follow from, and their hash."""
    return {
        "side": packed.side,
        "resize": packed.resize,
        "filter": packed.filter,
        "decoder": packed.decoder,
        "shards": len(packed.shards),
        "sha256": packed.sha256,
    }


def _facts(folder: Path, packed: Packed) -> tuple[PartFacts, PartFacts]:
    """What the manifest tells of the training and the test part."""

    def facts(part: PackedPart) -> PartFacts:
        return PartFacts(
            "packed",
            str(folder / MANIFEST),
            part.labels,
            (packed.channels,),
            ("none", "resized-crop-flip"),
            f"{len(packed.classes)} classes",
            packed.side,
        )

    return facts(packed.train), facts(packed.test)


class ShownImage(NamedTuple):
    """One image to show."""

    image: int
    draws: str
    """What the random crop and flip are drawn from, as for files; empty: the evaluation crop."""


class _ReadStep(NamedTuple):
    """Images under way, bytes (n, size, size, channels), and their labels (n,)."""

    images: Tensor
    labels: Tensor
    pieces: Sequence[Future[None]]
    """What the threads still do for it."""


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
        """`chosen` are the numbers of the images in the part, with these `labels`."""
        self.num_examples = len(chosen)
        self._maps, self._readers, self._normalisation = maps, readers, normalisation
        self._labels, self._chosen = torch.from_numpy(labels), torch.from_numpy(chosen)
        self._augmented = augmented
        device = normalisation.scale.device
        pinned = device.type not in ("cpu", "mps")
        self._bytes, self._pinned = ReusedMemory(torch.uint8, pinned), pinned
        self._floats = None if device.type != "cpu" else ReusedMemory(torch.float32, pinned=False)

    def stream(self, batch_size: int, seed: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        mine = share_of_step(batch_size, rank, ranks)

        def steps() -> Iterator[_ReadStep]:
            order = Order(self.num_examples, seed)
            for step in count():
                first = step * batch_size + mine.start
                images, _ = order.take(first, first + mine.stop - mine.start)
                yield self._begun(images, f"{seed}/" if self._augmented else "", first)

        return self._ahead(steps())

    def sweep(self, batch_size: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        batches = self.sweep_batches(batch_size, rank, ranks)
        return self._ahead(self._begun(torch.arange(batch.start, batch.stop), "", 0) for batch in batches)

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

    def _shown(self, images: Tensor, draws: str, first: int) -> list[ShownImage]:
        """`draws`: of the pass; each image has the number of its place as well."""
        return [
            ShownImage(image, draws and f"{draws}{place}")
            for place, image in enumerate(self._chosen[images].tolist(), start=first)
        ]

    def _normalised(self, pixels: Tensor) -> Tensor:
        """Turns bytes on the host into float32 on the device, (n, size, size, channels)."""
        images = pixels.to(self._normalisation.scale.device, non_blocking=self._pinned)
        if self._floats is None:
            return self._normalisation(images)
        return self._normalisation.into(images, self._floats.take(*images.shape))

    def _begun(self, images: Tensor, draws: str, first: int) -> _ReadStep:
        """Begins to read a step: its images, and its labels in memory from which a device can copy."""
        shown = self._shown(images, draws, first)
        size, channels = self._readers.size, len(self._normalisation.scale)
        buffer = self._bytes.take(len(shown), size, size, channels)
        labels = self._labels[images]
        labels = labels.pin_memory() if self._pinned else labels
        return _ReadStep(buffer, labels, self._readers.fill(self._maps, shown, buffer))

    def _ahead(self, steps: Iterator[_ReadStep]) -> Iterator[Batch]:
        """Reading begins at once, before the first batch is asked for."""
        return self._batches(deque(islice(steps, AHEAD)), steps)

    def _batches(self, begun: deque[_ReadStep], steps: Iterator[_ReadStep]) -> Iterator[Batch]:
        """Waits for one step after the other, and begins one for each that is taken."""
        device = self._normalisation.scale.device
        while begun:
            step = begun.popleft()
            for piece in step.pieces:
                piece.result()
            labels = step.labels.to(device, non_blocking=self._pinned)
            yield self._normalised(step.images).permute(0, 3, 1, 2), labels
            begun.extend(islice(steps, 1))


class Readers:
    """The threads of one rank, for every split and trial."""

    def __init__(self, threads: int, size: int) -> None:
        self.threads, self.size = threads, size
        _silence_torch()
        self._pool = ThreadPoolExecutor(threads, "read", initializer=torch.set_num_threads, initargs=(1,))
        self._start()

    def fill(self, maps: Maps, step: Sequence[ShownImage], buffer: Tensor) -> list[Future[None]]:
        """Begins to write the images of a step into bytes (n, size, size, channels)."""
        maps.announce(shown.image for shown in step)
        pixels = buffer.numpy()
        return [
            self._pool.submit(self._piece, maps, step[first : first + PIECE], pixels[first : first + PIECE])
            for first in range(0, len(step), PIECE)
        ]

    def fill_here(self, maps: Maps, step: Sequence[ShownImage], buffer: Tensor) -> None:
        """The same in the thread that calls."""
        self._piece(maps, step, buffer.numpy())

    def _piece(self, maps: Maps, step: Sequence[ShownImage], pixels: NDArray[np.uint8]) -> None:
        """Fills a piece of a step, in one thread."""
        for shown, place in zip(step, pixels):
            place[...] = cut(maps[shown.image], self.size, shown.draws)

    def _start(self) -> None:
        """All threads at once. An image is too small to be shared between threads of OpenMP, so each of these
        has none of them; but `set_num_threads` also says how many a thread has that begins later, which must
        be those of this one again."""
        together = threading.Barrier(self.threads + 1)
        for _ in range(self.threads):
            self._pool.submit(together.wait)
        together.wait()
        torch.set_num_threads(torch.get_num_threads())


def _silence_torch() -> None:
    """Torch warns once in a process of an array that cannot be written, as those of the shards are. They are
    only read, so the warning is spent here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(np.frombuffer(b"\0", np.uint8))


def cut(image: NDArray[np.uint8], size: int, draws: str) -> NDArray[np.uint8]:
    """The square of a packed image (side, side, channels) that is shown: bytes (size, size, channels).

    The evaluation crop is the centred square of 224/256 of the side: of images of 256² at 224² its pixels as
    they are. A random crop has the box and the flip that a file of this shape has from the same draws.
    """
    side = image.shape[0]
    if not draws:
        edge = round(side * EVALUATED_SHARE)
        first = (side - edge) // 2
        return _scaled(image[first : first + edge, first : first + edge], size)
    source = random.Random(draws)
    left, upper, right, lower = map(int, random_box(source, side, side))
    flip = source.random() < 0.5
    return _scaled(image[upper:lower, left:right], size, flip)


def _scaled(crop: NDArray[np.uint8], size: int, flip: bool = False) -> NDArray[np.uint8]:
    """Bilinear, with antialiasing, by torch's filter for bytes: to the bit what Pillow makes of the crop."""
    if crop.shape[:2] == (size, size) and not flip:
        return crop
    # Channels last in the strides as well, also of the one image: else torch goes through planes, at half
    # the speed.
    pixels = torch.from_numpy(crop).unsqueeze(0).permute(0, 3, 1, 2)
    if flip:
        pixels = pixels.flip(3)
    if crop.shape[:2] != (size, size):
        pixels = interpolate(pixels, (size, size), mode="bilinear", antialias=True)
    return pixels[0].permute(1, 2, 0).numpy()
