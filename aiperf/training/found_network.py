"""A network that a run found: its kept weights, as lineage and journal recorded them, and with the run's
examples next to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from aiperf.config import TrainingConfig
from aiperf.data import Data, load
from aiperf.device import Device, bind
from aiperf.engines.engine import placed
from aiperf.errors import DataError, JournalError
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.score.lineage import rebuild
from aiperf.tasks.registry import task_of
from aiperf.training.kept_network import Kept, read_kept
from nas.bounded import file_digest
from nas.frozen import frozen
from nas.graph import Graph
from nas.modules import Network
from nas.portable.preparation import Preparation


@frozen
class FoundNetwork:
    """A network on a device, as it was at its best validation."""

    network: Network
    device: Device
    data: Data
    training: TrainingConfig


def find_network(
    replay: Replay, files: RunFiles, number: int, kind: str, path: str, on_host: bool = False
) -> FoundNetwork:
    """Loads what a trial found. `path` is the data's folder here, or empty for the one that the run read;
    `on_host`: the examples lie in the host's memory, not on the device.

    Raises what `kept_trial` raises, and DataError where the data are missing or not the run's. `kind` is that
    of the device, of which the first is bound.
    """
    kept = kept_trial(replay, files, number)
    config = replay.opened.config
    device = bind(kind, 0)
    device.declare(config.training.format)
    data_config = replace(config.data, path=path or config.data.path, stage="")
    data = load(data_config, torch.device("cpu") if on_host else device.torch, config.random_seed)
    # The manifest has the SHA-256 of the data.
    if data.manifest != dict(replay.manifest):
        raise DataError(
            f"the {config.data.name} {task_of(config.data).example}s here are not those of the run; give "
            f"the same ones with --data"
        )
    return FoundNetwork(placed(kept.graph, kept.weights, device), device, data, config.training)


def preparation_of(replay: Replay) -> Preparation | None:
    """How an example of a run becomes the input of its networks, as its ranks recorded it. Older journals do
    not have it, so the data are read; None if they are generated, or are others here. Raises AiperfError if
    they cannot be read."""
    recorded = [each.ready.preparation for each in replay.ranks if each.ready.preparation is not None]
    if recorded:
        return recorded[0]
    config = replay.opened.config
    found = load(replace(config.data, stage=""), torch.device("cpu"), config.random_seed)
    return found.preparation if found.manifest == dict(replay.manifest) else None


def kept_trial(replay: Replay, files: RunFiles, number: int) -> Kept:
    """Raises JournalError for a trial that is not there or has not ended, and for a file that is another than
    the run's; DataError where its weights were not kept, or cannot be read. The architecture in the file must
    be the one that the journal's morphisms give."""
    graph, path = rebuild(replay, number), files.weights(number)
    if not path.exists():
        there = ", ".join(map(str, sorted(int(each.stem) for each in files.kept_weights()))) or "none"
        raise DataError(
            f"{files.weights_directory}: the weights of trial {number} were not kept, only those of the "
            f"best network and of possible parents; trials with weights: {there}"
        )
    return _recorded(replay, number, graph, path)


def spot_checked_trial(replay: Replay, files: RunFiles, number: int) -> Kept:
    """The same from the file for a spot check."""
    return _recorded(replay, number, rebuild(replay, number), files.spot_weights(number))


def _recorded(replay: Replay, number: int, graph: Graph, path: Path) -> Kept:
    """The network in a file, if it is the one that the journal recorded for this attempt. Raises JournalError
    otherwise."""
    kept = read_kept(path)
    if kept.graph != graph:
        raise JournalError(f"{path} holds another architecture than the lineage of trial {number}")
    attempt = replay.trials[number].attempts[-1]
    if attempt.ended is None:
        raise JournalError(f"{path}: trial {number} has not ended; wait until it has")
    if file_digest(path) != attempt.weights:
        raise JournalError(f"{path} is not the file that the journal recorded for trial {number}")
    return kept
