"""A network that a run found, from its kept weights, and the run's examples beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from aiperf.config import TrainingConfig
from aiperf.data import Data, load
from aiperf.device import Device, bind
from aiperf.errors import DataError
from aiperf.files import RunFiles
from aiperf.journal.replay import Replay
from aiperf.tasks.registry import task_of
from aiperf.training.kept_trial import kept_trial
from nas.modules import Network


@dataclass(frozen=True)
class FoundNetwork:
    """On a device, as it was when it was best on validation."""

    network: Network
    device: Device
    data: Data
    training: TrainingConfig


def find_network(
    replay: Replay, files: RunFiles, number: int, kind: str, path: str, on_host: bool = False
) -> FoundNetwork:
    """Loads what a trial found. `path` is the data's folder here, or empty for the one that the run read;
    `on_host`: the examples lie in the host's memory, not on the device.

    Raises what `kept_trial` raises, and DataError where the data are missing or not the run's.
    """
    kept = kept_trial(replay, files, number)
    config = replay.opened.config
    device = bind(kind, 0)
    device.declare(config.training.format)
    data_config = replace(config.data, path=path or config.data.path, stage="")
    data = load(data_config, torch.device("cpu") if on_host else device.torch, config.random_seed)
    if data.manifest != dict(replay.manifest):
        raise DataError(
            f"the {config.data.name} {task_of(config.data).example}s here are not those of the run; give "
            f"the same ones with --data"
        )
    network = Network(kept.graph)
    network.load(kept.weights)
    network.place(device.torch, device.layout)
    return FoundNetwork(network, device, data, config.training)
