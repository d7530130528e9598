"""Sets that fit on the device whole: checked arrays of bytes, split, resized and normalised."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aiperf.config import DataConfig
from aiperf.data.augment import augmentation
from aiperf.data.manifest import Counts, manifest
from aiperf.data.resident import HeldSplit
from aiperf.data.split import Data
from aiperf.data.stratify import take_validation
from aiperf.errors import DataError

__all__ = ["Part", "assemble", "fingerprint", "split_official"]

# Images resized at once: bounds the float32 copy.
CHUNK = 4096


@dataclass(frozen=True)
class Part:
    """Images, bytes (n, height, width, channels), with labels (n,). Raises DataError for what does not fit."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    where: str
    """The files, for the errors."""

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise DataError(
                f"{self.where}: {len(self.images)} images but {len(self.labels)} labels; "
                "fetch the files again, all of one release"
            )
        if not len(self.images):
            raise DataError(f"{self.where}: no images; fetch the files again")
        if self.images.shape[1] != self.images.shape[2]:
            raise DataError(f"{self.where}: images of {self.images.shape[1:3]} are not square; crop them first")

    def __getitem__(self, chosen: NDArray[np.int64]) -> Part:
        return Part(self.images[chosen], self.labels[chosen], self.where)

    def check(self, config: DataConfig) -> None:
        """Raises DataError when the configuration says otherwise."""
        if self.images.shape[3] != config.channels:
            raise DataError(
                f"{self.where}: images have {self.images.shape[3]} channels, data.channels is {config.channels}; "
                f"set data.channels = {self.images.shape[3]}"
            )
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= config.classes:
            raise DataError(
                f"{self.where}: labels from {low} to {high}, but data.classes is {config.classes}; "
                f"set data.classes = {high + 1} or mend the labels"
            )
        if len(np.unique(self.labels)) != config.classes:
            raise DataError(
                f"{self.where}: {len(np.unique(self.labels))} classes have images, data.classes is "
                f"{config.classes}; set data.classes to the number of classes"
            )


def split_official(config: DataConfig, device: torch.device, training: Part, test: Part) -> Data:
    """Training and validation from the official training part; the official test part whole."""
    for part in (training, test):
        part.check(config)
    chosen, held_back = take_validation(training.labels, config, training.where)
    return assemble(
        config, device, training[chosen], training[held_back], test, fingerprint(training, test)
    )


def assemble(
    config: DataConfig, device: torch.device, training: Part, validation: Part, test: Part, digest: str
) -> Data:
    """The three splits on the device, normalised by mean and deviation of the training images."""
    if config.augmentation == "resized-crop-flip":
        raise DataError(
            f"{training.where}: data.augmentation 'resized-crop-flip' is for folders of larger images; "
            "set it to 'none', 'shift' or 'crop-flip'"
        )
    parts = (training, validation, test)
    images = [_resized(torch.from_numpy(part.images), config.size) for part in parts]
    scale, shift = (values.to(device) for values in _normalisation(images[0], training.where))
    ways = (augmentation(config.augmentation, config.size), augmentation("none", config.size))
    train_split, validation_split, test_split = (
        HeldSplit(pixels.to(device), torch.from_numpy(part.labels).to(device), scale, shift, way)
        for pixels, part, way in zip(images, parts, (ways[0], ways[1], ways[1]))
    )
    counts = Counts(*(np.bincount(part.labels, minlength=config.classes).tolist() for part in parts))
    return Data(train_split, validation_split, test_split, manifest(config, counts, digest))


def fingerprint(*parts: Part) -> str:
    """SHA-256 over each part's shape, pixels (n, height, width, channels) and labels (a byte each)."""
    digest = sha256()
    for part in parts:
        digest.update(f"{part.images.shape}\n".encode())
        digest.update(np.ascontiguousarray(part.images).data)
        digest.update(part.labels.astype(np.uint8).tobytes())
    return digest.hexdigest()


def _resized(images: Tensor, size: int) -> Tensor:
    """Bytes (n, size, size, channels), bilinear with antialiasing (as Pillow), rounded."""
    if images.shape[1] == size:
        return images
    resized = [
        torch.nn.functional.interpolate(
            chunk.permute(0, 3, 1, 2).float(), (size, size), mode="bilinear", align_corners=False, antialias=True
        )
        for chunk in images.split(CHUNK)
    ]
    return torch.cat([chunk.round_().to(torch.uint8).permute(0, 2, 3, 1) for chunk in resized]).contiguous()


def _normalisation(images: Tensor, where: str) -> tuple[Tensor, Tensor]:
    """Scale and shift by channel that give mean 0 and deviation 1; from exact integer sums."""
    tones = np.arange(256)
    counts = np.stack([np.bincount(channel.numpy().ravel(), minlength=256) for channel in images.unbind(3)])
    mean = counts @ tones / counts.sum(1)
    deviation = np.sqrt(counts @ tones**2 / counts.sum(1) - mean**2)
    if not deviation.all():
        raise DataError(f"{where}: all pixels of a channel are equal; fetch the files again")
    scale = torch.from_numpy(1 / deviation).float()
    return scale, torch.from_numpy(-mean / deviation).float()
