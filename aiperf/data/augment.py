"""Random crops and flips of a whole block of images in one gather."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True)
class Augmentation:
    """A crop out of a black border of `pad` pixels, and a flip from left to right of every second image."""

    pad: int = 0
    flip: bool = False

    @property
    def draws(self) -> int:
        """Random numbers it needs for an image: row, column and flip."""
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
    if name == "none":
        return Augmentation()
    if name == "shift":
        return Augmentation(max(1, round(size / 16)))
    if name == "crop-flip":
        return Augmentation(max(1, round(size / 8)), flip=True)
    raise ValueError(f"{name!r} is no augmentation of a block of images")
