"""Generated images of any shape, number and classes: learnable, the same for a seed, nothing on disk."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import torch
from torch import Tensor

from aiperf.data.manifest import Counts, manifest
from aiperf.data.resident import ResidentSplit
from aiperf.data.splits import Data
from aiperf.errors import DataError
from aiperf.tasks.data import DataConfig
from aiperf.tasks.images.facts import MOST_GENERATED

# A class is a coarse picture of CELLS x CELLS; an image of it adds white noise of equal power.
CELLS = 8
# An image's noise is put together, line by line, out of one pool of so many lines of pixels.
LINES = 2048


class SyntheticSplit(ResidentSplit):
    """Images first, first + 1, … of the endless generated set: image g is of class g mod classes.

    Its row r shows line (a + r·b) mod LINES of the pool, b odd; (a, b) takes LINES²/2 values, which is
    `MOST_GENERATED`.
    """

    def __init__(self, first: int, num_examples: int, prototypes: Tensor, noise: Tensor) -> None:
        classes, _, _, channels = prototypes.shape
        self._size = noise.shape[1] // channels
        numbers = torch.arange(first, first + num_examples, device=noise.device)
        super().__init__(numbers % classes, channels * self._size**2)
        self._prototypes, self._noise = prototypes, noise
        self._starts = numbers % LINES
        self._strides = numbers // LINES * 2 % LINES + 1
        self._along = torch.arange(self._size, device=noise.device)

    def show(self, images: Tensor, draws: Tensor) -> Tensor:
        lines = (self._starts[images, None] + self._strides[images, None] * self._along) % LINES
        shown = self._noise.index_select(0, lines.view(-1)).view(len(images), self._size, self._size, -1)
        cell = self._along * CELLS // self._size
        coarse = self._prototypes.index_select(0, self.labels[images])
        return shown.add_(coarse.index_select(2, cell).index_select(1, cell))

    def show_range(self, start: int, stop: int) -> Tensor:
        images = torch.arange(start, stop, device=self.labels.device)
        return self.show(images, torch.empty(0))


def load_synthetic(config: DataConfig, device: torch.device, seed: int) -> Data:
    """Training, validation and test images follow one another in the generated set: none is in two."""
    lengths = (config.training_examples, config.validation_examples, config.test_examples)
    if min(lengths) < 1:
        raise DataError(
            "synthetic data: data.training_examples, data.validation_examples and data.test_examples must "
            "all be set in the configuration"
        )
    if sum(lengths) > MOST_GENERATED:
        raise DataError(
            f"synthetic data: {sum(lengths):,} images requested, but only {MOST_GENERATED:,} differ; lower "
            "data.training_examples"
        )
    if config.augmentation != "none":
        raise DataError(
            f"synthetic data: data.augmentation is {config.augmentation!r}, but generated images are not "
            f"augmented; set it to 'none'"
        )
    # NumPy's normals, not torch's: those depend on the vector instructions of the processor.
    source = np.random.default_rng(seed)
    shape = (config.classes, CELLS, CELLS, config.channels)
    prototypes = source.standard_normal(shape, dtype=np.float32)
    noise = source.standard_normal((LINES, config.size * config.channels), dtype=np.float32)
    digest = sha256(prototypes.tobytes() + noise.tobytes()).hexdigest()

    on_device = [torch.from_numpy(values * np.float32(0.5**0.5)).to(device) for values in (prototypes, noise)]
    splits = []
    first = 0
    for length in lengths:
        splits.append(SyntheticSplit(first, length, *on_device))
        first += length
    train, validation, test = splits
    counts = Counts(*(split.labels.bincount(minlength=config.classes).tolist() for split in splits))
    return Data(train, validation, test, manifest(config, counts, digest, sum(lengths[:2]), synthetic=True))
