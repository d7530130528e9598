"""What a network is trained to make small, and what is counted of its answers: by the kind of its output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from aiperf.tally import Tally
from aiperf.tasks.images.tally import Classified
from aiperf.tasks.language.tally import MOST_BITS, UNIT, Predicted
from nas.graph import Graph
from nas.head import Classes, Head, NextSymbol


class NotFinite(ArithmeticError):
    """A loss, or an answer in a validation, that is not a finite number: the steps since the last validation
    are void.

    Raised by all ranks of a group at once.
    """


class Objective(Protocol):
    """Of a batch: what a network puts out, and the targets that belong to it."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over the batch, (): what training makes small."""

    def nothing(self, device: torch.device) -> Tensor:
        """The judgement of no example, to which those of batches are added: (numbers,), int64."""

    def judged(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Exact sums over the batch, on its device: (numbers,), int64."""

    def tally(self, examples: int, *judged: int) -> Tally:
        """Of so many examples, from the sums. Raises NotFinite where an answer among them was not finite."""


@dataclass(frozen=True)
class Classification:
    """Logits (n, classes) against labels (n,): cross-entropy, and the right answers (top-1)."""

    label_smoothing: float = 0.0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets, label_smoothing=self.label_smoothing)

    def nothing(self, device: torch.device) -> Tensor:
        return torch.zeros(1, dtype=torch.int64, device=device)

    def judged(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(dim=1) == targets).sum().view(1)

    def tally(self, examples: int, *judged: int) -> Tally:
        return Classified(examples, *judged)


@dataclass(frozen=True)
class Prediction:
    """Logits (n, positions, symbols) against the symbols that follow (n, positions): cross-entropy at every
    position, and the bits that a code of these probabilities would take.

    Judged are the bits in units, the bytes, and those of them whose bits are not finite.
    """

    label_smoothing: float = 0.0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs.flatten(0, 1), targets.flatten(), label_smoothing=self.label_smoothing)

    def nothing(self, device: torch.device) -> Tensor:
        return torch.zeros(3, dtype=torch.int64, device=device)

    def judged(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Each byte by itself is rounded and bounded, so that sums are exact in every order."""
        nats = cross_entropy(outputs.float().flatten(0, 1), targets.flatten(), reduction="none")
        finite = nats.isfinite()
        units = (nats * (UNIT / log(2))).round().clamp(0, MOST_BITS * UNIT)
        known = units.where(finite, units.new_zeros(())).long()
        return torch.stack([known.sum(), torch.ones_like(known).sum(), (~finite).sum()])

    def tally(self, examples: int, *judged: int) -> Tally:
        units, of_bytes, unknown = judged
        if unknown:
            raise NotFinite(
                f"{unknown:,} of {of_bytes:,} bytes are predicted with a probability that is not finite; the "
                "learning rate may be too high"
            )
        return Predicted(examples, units, of_bytes)


KINDS: Mapping[type[Head], Callable[[float], Objective]] = {
    Classes: Classification,
    NextSymbol: Prediction,
}


def objective_of(graph: Graph, label_smoothing: float = 0.0) -> Objective:
    """By what the output of the graph is asked."""
    return KINDS[type(graph.head)](label_smoothing)
