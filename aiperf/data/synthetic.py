"""Generated images of any shape, number and classes: learnable, the same for a seed, nothing on disk."""

from __future__ import annotations

from hashlib import sha256
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from aiperf.data.resident import ResidentSplit
from aiperf.data.splits import Data, image_manifest
from aiperf.errors import DataError
from aiperf.tasks.data import DataConfig
from aiperf.tasks.images.facts import MOST_GENERATED

# A class is a coarse picture of CELLS x CELLS; an image of it adds white noise of equal power.
CELLS = 8
# An image's noise is put together, line by line, out of one pool of this many lines of pixels.
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
    parts = generated_parts(config, "data", "images", MOST_GENERATED)
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

    # A class's picture and the noise have half of the power each, so pixels have a deviation of about 1.
    on_device = [torch.from_numpy(values * np.float32(0.5**0.5)).to(device) for values in (prototypes, noise)]
    train, validation, test = (SyntheticSplit(part.start, len(part), *on_device) for part in parts)
    labels = [split.labels.cpu().numpy() for split in (train, validation, test)]
    return Data(train, validation, test, image_manifest(config, labels, digest, parts[2].start))


def generated_parts(config: DataConfig, what: str, examples: str, most: int) -> list[range]:
    """The numbers of the generated examples of training, validation and test, which follow one another.

    `what` and `examples` name them in errors; `most` of them differ. Raises DataError if a part is empty, or
    if there are more.
    """
    lengths = config.part_examples
    if min(lengths) < 1:
        raise DataError(
            f"synthetic {what}: data.training_examples, data.validation_examples and data.test_examples must "
            "all be set in the configuration"
        )
    *_, total = stops = list(accumulate(lengths))
    if total > most:
        raise DataError(
            f"synthetic {what}: {total:,} {examples} requested, but only {most:,} differ; lower "
            "data.training_examples"
        )
    return [range(stop - length, stop) for stop, length in zip(stops, lengths)]
