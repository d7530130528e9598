"""How networks are trained on spectrograms: made when the run begins, and asked as images are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from aiperf.data.resident import ResidentSplit
from aiperf.data.splits import Data
from aiperf.data.training import Destination, Training
from aiperf.tasks.data import DataConfig
from aiperf.tasks.images.training import Classification
from spectra.data import SpectraData
from spectra.facts import foreseen
from spectra.signals import Array, fingerprint, spectrograms


@dataclass(frozen=True)
class Scale:
    """Mean and deviation of the training examples, by which all examples are normalised."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, examples: Array) -> Scale:
        return cls(float(examples.mean()), float(examples.std()))


class SpectraSplit(ResidentSplit):
    """Spectrograms (n, bins, frames) that lie on the device as (n, bins, frames, 1)."""

    def __init__(self, examples: Array, classes: int, scale: Scale, device: torch.device) -> None:
        held = torch.from_numpy((examples - scale.mean) / scale.deviation)[..., None].to(device)
        super().__init__(torch.arange(len(held), device=device) % classes, held[0].numel())
        self._held = held

    def show(self, images: Tensor, draws: Tensor) -> Tensor:
        return self._held.index_select(0, images)

    def show_range(self, start: int, stop: int) -> Tensor:
        return self._held[start:stop]


def load(config: DataConfig, to: Destination) -> Data:
    assert isinstance(config, SpectraData)
    numbers = config.part_examples
    parts = [
        spectrograms(to.seed, part, number, config.bins, config.size) for part, number in enumerate(numbers)
    ]
    scale = Scale.of(np.asarray(parts[0]))
    train, validation, test = (SpectraSplit(part, config.classes, scale, to.device) for part in parts)
    return Data(train, validation, test, {**foreseen(config), "sha256": fingerprint(to.seed, numbers)})


TRAINING = Training(load, Classification)
