"""Sets that fit on the device whole: checked arrays of bytes, split, resized and normalised."""

from __future__ import annotations

from functools import partial
from hashlib import sha256

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from aiperf.data.normalise import pixel_normalisation
from aiperf.data.parts import PartFacts, divide
from aiperf.data.resident import AUGMENTATIONS, HeldSplit, augmentation
from aiperf.data.splits import Data, image_manifest
from aiperf.errors import DataError
from aiperf.tasks.data import DataConfig
from nas.frozen import frozen
from nas.portable.preparation import ImagePreparation

# Images resized at once: bounds the float32 copy.
CHUNK = 4096


@frozen
class Part:
    """Images, bytes (n, height, width, channels), with labels (n,). Raises DataError for a misfit."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    where: str
    """The files, for the errors."""

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise DataError(
                f"{self.where}: {len(self.images)} images but {len(self.labels)} labels; download the files "
                f"again, all from one release"
            )
        if not self.images.size:
            raise DataError(f"{self.where}: no images; download the files again")
        if self.images.shape[1] != self.images.shape[2]:
            height, width = self.images.shape[1:3]
            raise DataError(f"{self.where}: images of {height} x {width} are not square; crop them first")

    def __getitem__(self, chosen: NDArray[np.int64]) -> Part:
        return Part(self.images[chosen], self.labels[chosen], self.where)

    def facts(self, name: str) -> PartFacts:
        """What the part tells as one of a set that `data.name` calls so. Raises DataError for labels with
        gaps."""
        return PartFacts(name, self.where, self.labels, (self.images.shape[3],), AUGMENTATIONS)


def split_official(config: DataConfig, device: torch.device, training: Part, test: Part) -> Data:
    """Training and validation from the official training part; the official test part whole."""
    chosen, held_back = divide(config, training.facts(config.name), test.facts(config.name))
    parts = (training[chosen], training[held_back], test)
    return assemble(config, device, parts, fingerprint(training, test), len(training.labels))


def assemble(
    config: DataConfig,
    device: torch.device,
    parts: tuple[Part, Part, Part],
    digest: str,
    official_training_examples: int,
) -> Data:
    """Training, validation and test on the device, normalised by the training images."""
    # Normalised by the training images alone: what validates or tests has no influence on the input.
    images = [_resized(torch.from_numpy(part.images), config.size) for part in parts]
    normalisation = pixel_normalisation(images[0], parts[0].where).to(device)
    train, validation, test = (
        HeldSplit(
            pixels.to(device),
            torch.from_numpy(part.labels).to(device),
            normalisation,
            augmentation(name, config.size),
        )
        for pixels, part, name in zip(images, parts, (config.augmentation, "none", "none"))
    )
    labels = [part.labels for part in parts]
    return Data(
        train,
        validation,
        test,
        image_manifest(config, labels, digest, official_training_examples),
        preparation=ImagePreparation(config.size, normalisation.mean, normalisation.deviation),
    )


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
    resize = partial(interpolate, size=(size, size), mode="bilinear", align_corners=False, antialias=True)
    chunks = (resize(chunk.permute(0, 3, 1, 2).float()) for chunk in images.split(CHUNK))
    return torch.cat([chunk.round_().to(torch.uint8).permute(0, 2, 3, 1).contiguous() for chunk in chunks])
