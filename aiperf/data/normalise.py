"""Bytes to numbers of mean 0 and deviation 1."""

from __future__ import annotations

from dataclasses import field

import numpy as np
import torch
from torch import Tensor

from aiperf.errors import DataError
from nas.frozen import frozen

# Mean and deviation of ImageNet's red, green and blue as shares of full scale, as in torchvision's
# reference training; for grey images their averages.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_DEVIATION = (0.229, 0.224, 0.225)
# Images that are normalised at once, as float32: few enough for a cache, and enough that calling torch takes
# less than a microsecond for each image of 224².
CACHED_BYTES = 8 << 20


@frozen
class Normalisation:
    """`image · scale + shift`, by channel (c,)."""

    scale: Tensor
    shift: Tensor
    _lines: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, images: Tensor) -> Tensor:
        """Bytes (n, height, width, c) as new float32 of that shape."""
        scale, shift = self._line(images.shape[2])
        if images.is_cuda:
            return in_one_pass(images.flatten(2), scale, shift).view(images.shape)
        return images.flatten(2).to(torch.float32).mul_(scale).add_(shift).view(images.shape)

    def into(self, images: Tensor, out: Tensor) -> Tensor:
        """The same on the host, into float32 of that shape: some images at a time, while they are in the
        cache."""
        scale, shift = self._line(images.shape[2])
        together = max(1, CACHED_BYTES // (4 * images[0].numel()))
        for some, place in zip(images.flatten(2).split(together), out.flatten(2).split(together)):
            place.copy_(some).mul_(scale).add_(shift)
        return out

    def _line(self, width: int) -> tuple[Tensor, Tensor]:
        """Scale and shift of a line of pixels: an inner loop over three channels would be too short to be
        fast."""
        if width not in self._lines:
            self._lines[width] = self.scale.repeat(width), self.shift.repeat(width)
        return self._lines[width]

    @property
    def mean(self) -> tuple[float, ...]:
        """The mean that is subtracted, by channel."""
        return tuple((-self.shift / self.scale).tolist())

    @property
    def deviation(self) -> tuple[float, ...]:
        """The deviation that is divided by, by channel."""
        return tuple((1 / self.scale).tolist())

    def to(self, device: torch.device) -> Normalisation:
        """The same on another device."""
        return Normalisation(self.scale.to(device), self.shift.to(device))


def in_one_pass(pixels: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """`pixels · scale + shift` of bytes as float32. On CUDA this is one kernel, which reads a byte and writes
    a number of four; three kernels would move 21 bytes. On a CPU it takes longer than they do, and its
    last bit depends on whether the processor multiplies and adds at once."""
    return torch.addcmul(shift, pixels, scale)


def pixel_normalisation(images: Tensor, where: str) -> Normalisation:
    """The normalisation by all pixels of bytes (n, height, width, c), with exact integer sums: the same on
    every host. Raises DataError for images without contrast."""
    tones = np.arange(256)
    counts = np.stack([np.bincount(channel.numpy().ravel(), minlength=256) for channel in images.unbind(3)])
    mean = counts @ tones / counts.sum(1)
    deviation = np.sqrt(counts @ tones**2 / counts.sum(1) - mean**2)
    if not deviation.all():
        raise DataError(f"{where}: all pixels of a channel are equal; download the files again")
    return _from(mean, deviation)


def imagenet(channels: int) -> Normalisation:
    """The normalisation with ImageNet's mean and deviation, for one channel or three."""
    mean, deviation = np.array(IMAGENET_MEAN), np.array(IMAGENET_DEVIATION)
    if channels == 1:
        mean, deviation = mean.mean(keepdims=True), deviation.mean(keepdims=True)
    return _from(255 * mean, 255 * deviation)


def _from(mean: np.ndarray, deviation: np.ndarray) -> Normalisation:
    """The normalisation of bytes with this mean and deviation (c,). The division is made once, in
    float64."""
    return Normalisation(torch.from_numpy(1 / deviation).float(), torch.from_numpy(-mean / deviation).float())
