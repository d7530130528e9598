"""Random crops of a whole block of images in one gather."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Augmentation", "augmentation", "crop"]


@dataclass(frozen=True)
class Augmentation:
    """A crop out of a border of `pad` pixels, and a flip from left to right of every second image."""

    pad: int = 0
    flip: bool = False

    @property
    def draws(self) -> int:
        """Random numbers it needs for an image: row, column and flip."""
        return 3 if self.pad or self.flip else 0


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


def crop(padded: Tensor, images: Tensor, draws: Tensor, size: int, how: Augmentation) -> Tensor:
    """From a set (n, size + 2·pad, size + 2·pad, channels) the `images` (m,), moved by their draws (m, 3).

    Returns (m, size, size, channels).
    """
    corner = (draws[:, :2] * (2 * how.pad + 1)).long()
    along = torch.arange(size, device=padded.device)
    columns = along.expand(len(images), size)
    if how.flip:
        columns = torch.where(draws[:, 2:] < 0.5, along.flip(0), columns)
    rows = (corner[:, :1] + along)[:, :, None]
    columns = (corner[:, 1:] + columns)[:, None, :]
    return padded[images[:, None, None], rows, columns]
