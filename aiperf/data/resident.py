"""Splits whose images are made on the device: gathered there from a whole set, or generated."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import count

import torch
from torch import Tensor

from aiperf.data.augment import Augmentation
from aiperf.data.normalise import Normalisation
from aiperf.data.order import Order
from aiperf.data.splits import Batch, Split, share, share_of_step
from nas.modules import to_device

# Steps are prepared in blocks: one gather for many steps leaves each step two views. 4 MiB stays near
# the cache of a CPU; a step larger than that is a block of its own.
BLOCK_BYTES = 4 << 20
# Up to here a set is held normalised, above it as bytes that are normalised block by block.
NORMALISED_BYTES = 256 << 20


class ResidentSplit(Split):
    """The two orders of reading, over `show`."""

    def __init__(self, labels: Tensor, image_floats: int, draws: int = 0) -> None:
        self.labels = labels
        self.num_examples = len(labels)
        self._image_bytes = 4 * image_floats
        self._draws = draws

    @abstractmethod
    def show(self, images: Tensor, draws: Tensor) -> Tensor:
        """Images by number (m,) on the device, draws (m, d): float32 (m, height, width, channels)."""

    @abstractmethod
    def show_range(self, start: int, stop: int) -> Tensor:
        """Consecutive images as they are, not augmented: float32 (m, height, width, channels)."""

    def stream(self, batch_size: int, seed: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        mine = share_of_step(batch_size, rank, ranks)
        order = Order(self.num_examples, seed, self._draws)
        size = mine.stop - mine.start
        steps = max(1, BLOCK_BYTES // (size * self._image_bytes))
        for first in count(0, steps):
            images, draws = order.take(first * batch_size, (first + steps) * batch_size)
            if ranks > 1:
                images = images.view(steps, batch_size)[:, mine].reshape(-1)
                draws = draws.view(steps, batch_size, -1)[:, mine].flatten(0, 1)
            images = to_device(images, self.labels.device)
            shown = self.show(images, to_device(draws, self.labels.device)).permute(0, 3, 1, 2)
            yield from zip(shown.split(size), self.labels.index_select(0, images).split(size))

    def sweep(self, batch_size: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        mine = share(self.num_examples, rank, ranks)
        size = max(1, batch_size // ranks)
        for start in range(mine.start, mine.stop, size):
            stop = min(start + size, mine.stop)
            yield self.show_range(start, stop).permute(0, 3, 1, 2), self.labels[start:stop]


class HeldSplit(ResidentSplit):
    """A whole set on the device: bytes (n, size, size, channels) and labels (n,)."""

    def __init__(
        self, images: Tensor, labels: Tensor, normalisation: Normalisation, augmentation: Augmentation
    ) -> None:
        self._size = images.shape[1]
        super().__init__(labels, images[0].numel(), augmentation.draws)
        self._augmentation = augmentation
        self._normalisation = normalisation
        held = augmentation.border(images)
        self._held = self._normalised(held) if 4 * held.numel() <= NORMALISED_BYTES else held

    def show(self, images: Tensor, draws: Tensor) -> Tensor:
        if not self._augmentation.draws:
            return self._normalised(self._held.index_select(0, images))
        return self._normalised(self._augmentation.crop(self._held, images, draws))

    def show_range(self, start: int, stop: int) -> Tensor:
        pad = self._augmentation.pad
        inside = slice(pad, pad + self._size)
        return self._normalised(self._held[start:stop, inside, inside].contiguous())

    def _normalised(self, images: Tensor) -> Tensor:
        return images if images.dtype == torch.float32 else self._normalisation(images)
