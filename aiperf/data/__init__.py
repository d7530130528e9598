"""Images for training, validation and test: checked before the clock starts, ready before they are needed."""

from __future__ import annotations

import torch

from aiperf.config import DataConfig
from aiperf.data.digits import load_digits_set
from aiperf.data.split import Batch, Data, Split
from aiperf.data.synthetic import load_synthetic

__all__ = ["Batch", "Data", "Split", "load"]


def load(config: DataConfig, device: torch.device, seed: int) -> Data:
    """Reads and checks the whole set and puts it where training reads it.

    `seed` makes the generated images of `synthetic`; real images are split alike in every run.
    Raises DataError, which names the file, what is wrong and the remedy.
    """
    if config.name == "digits":
        return load_digits_set(config, device)
    if config.name == "synthetic":
        return load_synthetic(config, device, seed)
    raise AssertionError(f"no reader for {config.name}")
