"""Images for training, validation and test: checked before the clock starts, ready before they are needed."""

from __future__ import annotations

from pathlib import Path

import torch

from aiperf.config import DataConfig
from aiperf.data.cifar10 import load_cifar10
from aiperf.data.digits import load_digits_set
from aiperf.data.idx import load_idx
from aiperf.data.imagefolder import load_imagefolder
from aiperf.data.split import Batch, Data, Split
from aiperf.data.synthetic import load_synthetic
from aiperf.errors import DataError

__all__ = ["Batch", "Data", "Split", "load"]


def load(config: DataConfig, device: torch.device, seed: int, local_ranks: int = 1) -> Data:
    """Reads and checks the whole set and puts it where training reads it.

    `seed` makes the generated images of `synthetic`; real images are split alike in every run.
    `local_ranks` on this host share its cores for decoding, unless each is bound to cores of its own.
    Raises DataError, which names the file, what is wrong and the remedy.
    """
    if config.name in ("idx", "cifar10", "imagefolder") and not Path(config.path or "?").is_dir():
        raise DataError(
            f"data.path is {config.path!r}, which is no folder; set it to the folder of the {config.name} "
            "files"
        )
    if config.name == "digits":
        return load_digits_set(config, device)
    if config.name == "idx":
        return load_idx(config, device)
    if config.name == "cifar10":
        return load_cifar10(config, device)
    if config.name == "imagefolder":
        return load_imagefolder(config, device, local_ranks)
    assert config.name == "synthetic", config.name
    return load_synthetic(config, device, seed)
