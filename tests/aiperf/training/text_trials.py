"""A text that is easily learnt, and what the trials of it need: for tests of the training of text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aiperf.config import TrainingConfig
from aiperf.data.splits import Batch, Data, Split, share, share_of_step
from aiperf.device import Device, bind
from aiperf.parallel.parallel import Parallel, Solo
from aiperf.training.built_trial import Rank
from aiperf.training.kept_network import Kept
from aiperf.wire.trial import HyperParameters, Trial
from nas.text_seeds import llama
from nas.weights import initial

WINDOW, BATCH = 16, 16
SENTENCE = b"the quick brown fox jumps over the lazy dog; "
TEXT = SENTENCE * 60
UNSEEN = TEXT + b"! " + SENTENCE
"""Ends, in the share of the second of two ranks, with a byte that training never shows."""
GRAPH = llama((WINDOW,), 256, blocks=2, heads=2, groups=1, width=32, hidden=64)
START = Kept(GRAPH, initial(GRAPH, 1), {})
TRAINING = TrainingConfig(
    "fp32",
    batch_size=BATCH,
    learning_rate=0.01,
    epochs=(16,),
    validate_every_examples=160 * 16,
    optimizer="adamw",
    gradient_clip=1.0,
    weight_decay=0.1,
    label_smoothing=0.0,
)


class Windows(Split):
    """Windows of a text in memory: window i begins at byte i times its length; each byte is predicted
    once."""

    def __init__(self, text: bytes) -> None:
        self.bytes = torch.tensor(list(text), dtype=torch.int64)
        self.num_examples = (len(text) - 1) // WINDOW

    def stream(self, batch_size: int, seed: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        generator, order = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.int64)
        while True:
            while len(order) < batch_size:
                order = torch.cat([order, torch.randperm(self.num_examples, generator=generator)])
            yield self._batch(order[:batch_size][share_of_step(batch_size, rank, ranks)])
            order = order[batch_size:]

    def sweep(self, batch_size: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        own = torch.arange(self.num_examples)[share(self.num_examples, rank, ranks)]
        for part in own.split(max(1, batch_size // ranks)):
            yield self._batch(part)

    def _batch(self, windows: Tensor) -> Batch:
        places = windows[:, None] * WINDOW + torch.arange(WINDOW)
        return self.bytes[places], self.bytes[places + 1]


def rank_of(
    parallel: Parallel | None = None, device: Device | None = None, validation: bytes = TEXT, **training: Any
) -> Rank:
    data = Data(Windows(TEXT), Windows(validation), Windows(validation), {})
    return Rank(device or bind("cpu", 0), data, replace(TRAINING, **training), parallel or Solo())


def text_trial(**hyper: Any) -> Trial:
    chosen = {
        "learning_rate": TRAINING.learning_rate,
        "batch_size": BATCH,
        "momentum": 0.9,
        "weight_decay": TRAINING.weight_decay,
    }
    return Trial(0, None, (), HyperParameters(**(chosen | hyper)), 1, TRAINING.epochs[0], 1)


def infinite() -> Kept:
    """A network whose embedding is infinite for the byte that only `UNSEEN` has."""
    weights = dict(START.weights)
    weights["embedding.weight"] = weights["embedding.weight"].copy()
    weights["embedding.weight"][ord("!")] = np.inf
    return Kept(GRAPH, weights, {})
