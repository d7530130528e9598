"""How networks are trained on spectrograms: made when the run begins, and asked as images are."""

from __future__ import annotations

import torch
from torch import Tensor

from aiperf.data.resident import ResidentSplit
from aiperf.data.splits import Data
from aiperf.data.training import Destination, Training
from aiperf.tasks.data import DataConfig
from aiperf.tasks.images.training import Classification
from spectra.data import SpectraData, foreseen
from spectra.signals import Array, fingerprint, spectrograms


class SpectraSplit(ResidentSplit):
    """Spectrograms (n, bins, frames) that lie on the device as (n, bins, frames, 1)."""

    def __init__(self, examples: Array, like: Array, classes: int, device: torch.device) -> None:
        """Normalised by the mean and the deviation of others."""
        held = torch.from_numpy((examples - like.mean()) / like.std())[..., None].to(device)
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
    train, validation, test = (SpectraSplit(part, parts[0], config.classes, to.device) for part in parts)
    return Data(train, validation, test, {**foreseen(config), "sha256": fingerprint(to.seed, numbers)})


TRAINING = Training(load, Classification)
