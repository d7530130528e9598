"""Generated images of any shape, number and classes: learnable, the same for a seed, nothing on disk."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import torch
from torch import Tensor

from aiperf.config import DataConfig
from aiperf.data.manifest import Counts, manifest
from aiperf.data.resident import ResidentSplit
from aiperf.data.split import Data
from aiperf.errors import DataError

__all__ = ["load_synthetic"]

# A class is a coarse picture of CELLS x CELLS; an image of it adds white noise of equal power.
CELLS = 8
# Noise is read from one pool at one of so many places: with 10 classes 5 million images differ.
PLACES = 1 << 20
# Odd, hence coprime to PLACES: consecutive images read far from each other (Knuth, TAOCP 3, 6.4).
STRIDE = 648_055


class SyntheticSplit(ResidentSplit):
    """Images first, first + 1, … of the endless generated set: image g is of class g mod classes."""

    def __init__(self, first: int, num_images: int, prototypes: Tensor, noise: Tensor, size: int) -> None:
        classes, channels = prototypes.shape[:2]
        numbers = torch.arange(first, first + num_images, device=noise.device)
        super().__init__(numbers % classes, channels * size * size)
        self._places = numbers * STRIDE % PLACES
        self._prototypes = prototypes
        self._shape = (size, size, channels)
        self._noise = noise.as_strided((PLACES, channels * size * size), (1, 1))

    def show(self, images: Tensor, draws: Tensor) -> Tensor:
        shown = self._noise.index_select(0, self._places[images]).view(-1, *self._shape)
        coarse = self._prototypes.index_select(0, self.labels[images])
        fine = torch.nn.functional.interpolate(coarse, self._shape[:2], mode="bilinear", align_corners=False)
        return shown.add_(fine.permute(0, 2, 3, 1)).mul_(0.5**0.5)

    def show_range(self, start: int, stop: int) -> Tensor:
        images = torch.arange(start, stop, device=self.labels.device)
        return self.show(images, torch.empty(0))


def load_synthetic(config: DataConfig, device: torch.device, seed: int) -> Data:
    """Training, validation and test images follow one another in the generated set: none is in two."""
    lengths = (config.training_images, config.validation_images, config.test_images)
    if min(lengths) < 1:
        raise DataError(
            "synthetic data: data.training_images, data.validation_images and data.test_images must all be "
            "given; set them in the configuration"
        )
    if config.augmentation != "none":
        raise DataError(
            f"synthetic data: data.augmentation is {config.augmentation!r}, but generated images are shown "
            "as they are; set it to 'none'"
        )
    # NumPy's normals, not torch's: those depend on the vector instructions of the processor.
    source = np.random.default_rng(seed)
    shape = (config.classes, config.channels, CELLS, CELLS)
    prototypes = source.standard_normal(shape, dtype=np.float32)
    noise = source.standard_normal(PLACES + config.channels * config.size**2, dtype=np.float32)
    digest = sha256(prototypes.tobytes() + noise.tobytes()).hexdigest()

    on_device = [torch.from_numpy(values).to(device) for values in (prototypes, noise)]
    splits = []
    first = 0
    for length in lengths:
        splits.append(SyntheticSplit(first, length, on_device[0], on_device[1], config.size))
        first += length
    train, validation, test = splits
    counts = Counts(*(split.labels.bincount(minlength=config.classes).tolist() for split in splits))
    return Data(train, validation, test, manifest(config, counts, digest, synthetic=True))
