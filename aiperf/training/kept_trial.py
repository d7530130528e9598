"""The network that a run kept of a trial, as its lineage and its journal have it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from aiperf.data import load
from aiperf.errors import DataError, JournalError
from aiperf.files import RunFiles
from aiperf.journal.replay import Replay
from aiperf.score.lineage import rebuild
from aiperf.training.kept_network import Kept, read_kept
from nas.bounded import file_digest
from nas.graph import Graph
from nas.portable.preparation import Preparation


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
    the run's; DataError where its weights were not kept, or cannot be read."""
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
    kept = read_kept(path)
    if kept.graph != graph:
        raise JournalError(f"{path} holds another architecture than the lineage of trial {number}")
    ended = replay.trials[number].attempts[-1].ended
    if ended is None:
        raise JournalError(f"{path}: trial {number} has not ended; wait until it has")
    if file_digest(path) != ended.finished.weights:
        raise JournalError(f"{path} is not the file that the journal recorded for trial {number}")
    return kept
