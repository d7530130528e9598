"""Examples to train, validate and test: checked before the clock starts, ready before needed."""

from __future__ import annotations

import torch

from aiperf.data.splits import Batch, Data, Split
from aiperf.data.training import Destination, training_of
from aiperf.tasks.data import DataConfig, refuse_incomplete
from aiperf.tasks.registry import task_of

__all__ = ["Batch", "Data", "Split", "load"]


def load(config: DataConfig, device: torch.device, seed: int, local_ranks: int = 1) -> Data:
    """Reads and checks the whole set, and puts it on the device or prepares to read it from files.

    `seed` is that of generated examples; `local_ranks` share the cores of this host. Raises DataError, which
    names the file, what is wrong and the remedy; ConfigError if a folder is needed and not configured, or if
    the manifest of a task of another package lacks a key.
    """
    config.refuse_no_folder()
    data = training_of(task_of(config)).load(config, Destination(device, seed, local_ranks))
    refuse_incomplete(config.name, data.manifest)
    return data
