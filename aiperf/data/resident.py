"""Splits whose images are made on the device: gathered there from a whole set and augmented, or generated."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import count

import torch
from torch import Tensor
from torch.nn.functional import pad

from aiperf.data.normalise import Normalisation
from aiperf.data.splits import Batch, Order, Split, share_of_step
from nas.frozen import frozen
from nas.modules import to_device

# Steps are prepared in blocks: one gather for many steps leaves each step two views. 4 MiB stays near
# the cache of a CPU; a step larger than that is a block of its own.
BLOCK_BYTES = 4 << 20
# Up to here a set is held normalised, above it as bytes that are normalised block by block.
NORMALISED_BYTES = 256 << 20


AUGMENTATIONS = ("none", "shift", "crop-flip")
"""Names of the augmentations of a block of images."""


class ResidentSplit(Split):
    """The two orders of reading, over `show` and `show_range`."""

    def __init__(self, labels: Tensor, image_floats: int, draws: int = 0) -> None:
        self.labels = labels
        self.num_examples = len(labels)
        self._image_bytes = 4 * image_floats
        self._draws = draws

    @abstractmethod
    def show(self, images: Tensor, draws: Tensor) -> Tensor:
        """The images of these numbers (m,), augmented as their draws (m, d) say: float32 (m, height, width,
        channels), on the device."""

    @abstractmethod
    def show_range(self, start: int, stop: int) -> Tensor:
        """The images from `start` to before `stop`, not augmented: float32 (m, height, width, channels)."""

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
        for batch in self.sweep_batches(batch_size, rank, ranks):
            images = self.show_range(batch.start, batch.stop)
            yield images.permute(0, 3, 1, 2), self.labels[batch.start : batch.stop]


@frozen
class Augmentation:
    """A crop out of a black border of `pad` pixels, and a flip from left to right of every second image."""

    pad: int = 0
    flip: bool = False

    @property
    def draws(self) -> int:
        """How many random numbers an image needs: row, column and flip."""
        return 3 if self.pad or self.flip else 0

    def border(self, images: Tensor) -> Tensor:
        """A set as `crop` reads it: (n, size, size, c) → (n or 2n, size + 2·pad, size + 2·pad, c).

        With flips the mirrored set follows the set: a second copy, but no second pass over each block.
        """
        wide = pad(images, (0, 0, self.pad, self.pad, self.pad, self.pad)) if self.pad else images
        return torch.cat([wide, wide.flip(2)]) if self.flip else wide

    def crop(self, bordered: Tensor, images: Tensor, draws: Tensor) -> Tensor:
        """The `images` (m,) of a bordered set, moved by their draws (m, 3): (m, size, size, c)."""
        whole, width, _, channels = bordered.shape
        size = width - 2 * self.pad
        line = width * channels
        # Every crop there can be is a view of the set: one index reads whole lines at a time, which on
        # a CPU is five times as fast as an index of single pixels.
        places = 2 * self.pad + 1
        windows = bordered.as_strided(
            (whole, places, places, size, size * channels), (width * line, line, channels, line, 1)
        )
        corner = (draws[:, :2] * places).long()
        if self.flip:
            images = images + (draws[:, 2] < 0.5) * (whole // 2)
        cropped: Tensor = windows[images, corner[:, 0], corner[:, 1]]
        return cropped.view(len(images), size, size, channels)


def augmentation(name: str, size: int) -> Augmentation:
    """`shift`: ±2 pixels of 32. `crop-flip`: ±4 of 32 and a flip (He et al., CVPR 2016, section 4.2).

    Other sizes in proportion, at least one pixel. `none`: nothing.
    """
    return {
        "none": Augmentation(),
        "shift": Augmentation(max(1, round(size / 16))),
        "crop-flip": Augmentation(max(1, round(size / 8)), flip=True),
    }[name]


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
        """Normalises bytes; a set that is held normalised is returned as it is."""
        return images if images.dtype == torch.float32 else self._normalisation(images)
